package agent

import "time"

// limits are the bounds of one server (I6). Tests have smaller ones.
type limits struct {
	// connections of authenticated clients, in all and of one tenant.
	connections, perTenant int
	// pending are connections that have not authenticated, in all and from one
	// address: beyond them the oldest goes, so that somebody who opens and says
	// nothing keeps nobody out.
	pending, pendingPerSource int
	// handshakes that one address may begin, per second and at once.
	rate, burst float64
	// handshake is how long a client may take until its first call may begin.
	handshake time.Duration
	// idle connections, without a call, are closed after this time, and all after
	// age, so that certificates are looked at again; calls may end within grace.
	idle, age, grace time.Duration
	// ping is after how much silence a client is asked for a sign of life, pong how
	// long it may take; pings is how often it may ask itself.
	ping, pong, pings time.Duration
	// streams are the calls at one time on one connection.
	streams uint32
	// call bounds a call whose client gave it no less.
	call time.Duration
	// quiet is how often the log tells of refusals of one kind.
	quiet time.Duration
}

func defaults() limits {
	return limits{
		connections: 256, perTenant: 32,
		pending: 64, pendingPerSource: 16,
		rate: 16, burst: 64,
		handshake: 10 * time.Second,
		idle:      15 * time.Minute, age: time.Hour, grace: 10 * time.Minute,
		ping: 30 * time.Second, pong: 10 * time.Second, pings: 10 * time.Second,
		streams: 64,
		call:    5 * time.Minute,
		quiet:   time.Second,
	}
}

const (
	// maxSources are the addresses whose handshakes are counted apart; beyond them
	// the rest share one count.
	maxSources = 4096
	sweepEvery = time.Second
	// streamWindow and connWindow are the bytes that a client may send ahead of us.
	streamWindow = 64 << 10
	connWindow   = 256 << 10
	// maxHeaders bounds the metadata of a call, bytes.
	maxHeaders = 16 << 10
	maxLogged  = 512     // bytes of one text in the log
	maxAdmin   = 4 << 20 // bytes of an answer to a command on the same machine
	// metricsTimeout bounds a request for metrics, and what pools are asked then.
	metricsTimeout = 10 * time.Second
	// healthTimeout bounds what a request for health asks.
	healthTimeout = 10 * time.Second
)
