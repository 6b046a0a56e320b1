package faultproxy

import "time"

const (
	// maxQueued bounds what one direction of one connection holds back, bytes;
	// beyond it the sender feels TCP's own back-pressure.
	maxQueued = 16 << 20
	// pieceSize is the most read from a socket at once, bytes.
	pieceSize = 64 << 10
	// maxLinks bounds the connections open at a time; more are reset.
	maxLinks = 4096
	// maxArmed bounds the faults waiting for their byte.
	maxArmed = 1024
	// dialTimeout bounds the connection to the target.
	dialTimeout = 5 * time.Second
	// throttleStep is the share of a second a throttled write may fill.
	throttleStep = 50
	// maxLine bounds one line of the control protocol, bytes.
	maxLine = 1024
)
