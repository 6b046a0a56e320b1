package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestBytesPassBothWaysAndAreCounted(t *testing.T) {
	r := newRig(t).connect()
	r.send(r.client, "question")
	r.want(r.target, "question")
	r.send(r.target, "answer")
	r.want(r.client, "answer")
	if s := r.Stats(); s != (Stats{Accepted: 1, Open: 1, ToTarget: 8, ToClient: 6}) {
		t.Errorf("%+v", s)
	}
}

func TestAHalfClosePasses(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.client.(*net.TCPConn).CloseWrite())
	r.ends(r.target, io.EOF)
	r.send(r.target, "late")
	r.want(r.client, "late")
}

func TestAResetOfTheClientReachesTheTarget(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.client.(*net.TCPConn).SetLinger(0))
	r.must(r.client.Close())
	r.ends(r.target, syscall.ECONNRESET)
}

func TestCutAtAByteEndsWithFinThere(t *testing.T) {
	r := newRig(t)
	r.must(r.AtByte(3, Fault{Kind: Cut, Dir: ToTarget}))
	r.connect()
	r.send(r.client, "abcdef")
	r.want(r.target, "abc")
	r.ends(r.target, io.EOF)
	r.send(r.target, "still")
	r.want(r.client, "still")
}

func TestCutOfBothLooksLikeAnEndedProcess(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: Cut}))
	r.ends(r.client, io.EOF)
	r.ends(r.target, io.EOF)
}

func TestResetAtOnceReachesBothEnds(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: Reset}))
	r.ends(r.client, syscall.ECONNRESET)
	r.ends(r.target, syscall.ECONNRESET)
}

func TestResetOfOneDirectionLeavesTheOtherEndHalfOpen(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: Reset, Dir: ToClient}))
	r.ends(r.client, syscall.ECONNRESET)
	r.silent(r.target)
}

func TestABlackHoleNeverDeliversEvenAfterHealing(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: BlackHole}))
	r.send(r.client, "gone")
	r.swallowed(4)
	r.silent(r.target)
	r.must(r.Heal())
	r.send(r.client, "gone too")
	r.must(r.client.Close()) // not even the FIN
	r.silent(r.target)
	if s := r.Stats(); s.ToTarget != 0 {
		t.Errorf("%+v", s)
	}
}

func TestABlackHoleSwallowsNewConnectionsUntilHealed(t *testing.T) {
	r := newRig(t)
	r.must(r.Now(Fault{Kind: BlackHole}))
	c := r.dial()
	r.send(c, "hello?")
	r.swallowed(6) // taken in before the healing
	r.silent(c)
	r.must(r.Heal())
	r.connect() // the server's first connection is this one
	r.send(r.client, "hi")
	r.want(r.target, "hi")
}

func TestABlackHoleOfOneDirectionPassesTheOther(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: BlackHole, Dir: ToClient}))
	r.send(r.client, "ping")
	r.want(r.target, "ping")
	r.send(r.target, "pong")
	r.silent(r.client)
}

func TestHeldBytesComeInOrderAfterRelease(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: Hold, Dir: ToTarget}))
	r.send(r.client, "one")
	r.silent(r.target)
	r.send(r.client, "two")
	r.Release(ToTarget)
	r.want(r.target, "onetwo")
	r.send(r.client, "three")
	r.want(r.target, "three")
}

func TestHeldBytesArriveAfterTheirConnectionWasReset(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: Hold}))
	r.send(r.client, "stale write")
	r.silent(r.target)
	r.must(r.client.(*net.TCPConn).SetLinger(0))
	r.must(r.client.Close())
	r.Release(Both)
	r.want(r.target, "stale write")
	r.ends(r.target, syscall.ECONNRESET)
}

func TestHoldAtAByteDeliversWhatCameBefore(t *testing.T) {
	r := newRig(t)
	r.must(r.AtByte(4, Fault{Kind: Hold, Dir: ToTarget}))
	r.connect()
	r.send(r.client, "abcdefgh")
	r.want(r.target, "abcd")
	r.silent(r.target)
	r.Release(Both)
	r.want(r.target, "efgh")
}

func TestFlipChangesOnlyTheBytesItNames(t *testing.T) {
	r := newRig(t)
	r.must(r.AtByte(1, Fault{Kind: Flip, Dir: ToClient, Count: 2, Mask: 0x20}))
	r.connect()
	r.send(r.target, "aaaaa")
	r.want(r.client, "aAAaa")
	r.send(r.client, "bbb")
	r.want(r.target, "bbb")
}

func TestDropLeavesBytesOut(t *testing.T) {
	r := newRig(t)
	r.must(r.AtByte(2, Fault{Kind: Drop, Dir: ToTarget, Count: 3}))
	r.connect()
	r.send(r.client, "abcdefgh")
	r.want(r.target, "abfgh")
}

func TestDelayDeliversLaterAndWhole(t *testing.T) {
	r := newRig(t).connect()
	const d = 40 * time.Millisecond
	r.must(r.Now(Fault{Kind: Delay, Dir: ToTarget, Wait: d}))
	began := time.Now()
	r.send(r.client, "slow")
	r.want(r.target, "slow")
	if took := time.Since(began); took < d {
		t.Errorf("came after %v", took)
	}
}

func TestThrottleLimitsBytesPerSecond(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: Throttle, Rate: 100_000}))
	msg := strings.Repeat("x", 10_000)
	began := time.Now()
	r.send(r.client, msg)
	r.want(r.target, msg)
	if took := time.Since(began); took < 80*time.Millisecond {
		t.Errorf("10 kB at 100 kB/s came after %v", took)
	}
}

func TestAfterHappensLaterUnlessHealed(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.After(time.Hour, Fault{Kind: Reset}))
	r.must(r.Heal())
	r.must(r.After(time.Millisecond, Fault{Kind: Cut}))
	r.ends(r.client, io.EOF)
}

func TestRefuseClosesThePortAndAcceptReopensIt(t *testing.T) {
	r := newRig(t).connect()
	addr := r.Addr()
	r.Refuse()
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("dial: %v", err)
	}
	r.send(r.client, "open ones stay")
	r.want(r.target, "open ones stay")
	r.must(r.Accept())
	r.connect()
	if r.Addr() != addr {
		t.Error("the port changed")
	}
}

func TestADeadTargetResetsTheClient(t *testing.T) {
	r := newRig(t)
	_ = r.server.Close()
	c, err := net.Dial("tcp", r.Addr())
	if errors.Is(err, syscall.ECONNRESET) {
		return // so fast that connect saw it
	}
	r.must(err)
	defer func() { _ = c.Close() }()
	r.ends(c, syscall.ECONNRESET)
}

func TestMuchDataArrivesUnchangedThroughSmallFaults(t *testing.T) {
	r := newRig(t).connect()
	r.must(r.Now(Fault{Kind: Delay, Wait: time.Millisecond}))
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() { _, _ = r.client.Write(data); _ = r.client.Close() }()
	r.must(r.Now(Fault{Kind: Hold}))
	r.Release(Both)
	r.must(r.Now(Fault{Kind: Delay}))
	got, err := io.ReadAll(r.target)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(data), err)
	}
}

func TestCloseLeavesNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	r := newRig(t)
	for _, k := range []Kind{Cut, Reset, BlackHole, Hold, Delay, Throttle} {
		r.connect()
		_ = r.Now(Fault{Kind: k, Wait: time.Hour, Rate: 1})
		_, _ = r.client.Write(make([]byte, 1<<20))
		_ = r.Heal()
		_ = r.Now(Fault{Kind: k, Wait: time.Hour, Rate: 1})
		_ = r.Heal()
	}
	_ = r.Close()
	_ = r.server.Close()
	// Close has waited for the last deferred call of each; let them return.
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before && time.Now().Before(end); {
		runtime.Gosched()
	}
	if after := runtime.NumGoroutine(); after > before {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines before, %d after\n%s", before, after, buf[:runtime.Stack(buf, true)])
	}
	if err := r.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
}

func TestTheLineProtocolReachesEveryFault(t *testing.T) {
	r := newRig(t)
	for _, line := range []string{"", "cut", "reset to-client at 7", "hole both after 1h", "hold to-target", "release", "release to-client",
		"delay 5ms both", "throttle 1000 to-client", "drop 3 to-target at 0", "flip 2 0x80 at 9", "refuse", "accept", "heal", "help"} {
		if got := r.Command(line); !strings.HasPrefix(got, "ok") || strings.Contains(got, "\n") {
			t.Errorf("%q: %q", line, got)
		}
	}
	for _, line := range []string{"explode", "delay", "delay -1s", "throttle x", "cut sideways", "cut at", "cut at -1", "cut after soon",
		"release up", "flip 1 0xzz"} {
		if got := r.Command(line); !strings.HasPrefix(got, "error ") {
			t.Errorf("%q: %q", line, got)
		}
	}
	var out bytes.Buffer
	if err := r.Serve(strings.NewReader("stats\nquit\nnever"), &out); !errors.Is(err, ErrQuit) {
		t.Error(err)
	}
	if got := out.String(); got != "ok accepted=0 open=0 to-target=0 to-client=0 discarded=0\nok\n" {
		t.Error(got)
	}
}

func FuzzCommand(f *testing.F) {
	f.Add("flip 2 0x80 to-target at 9")
	p := &Proxy{links: map[*link]struct{}{}, timers: map[*time.Timer]struct{}{}, closed: true}
	f.Fuzz(func(t *testing.T, line string) {
		if got := p.Command(line); !strings.HasPrefix(got, "ok") && !strings.HasPrefix(got, "error ") {
			t.Fatalf("%q", got)
		}
		p.rules, p.armed = nil, nil
	})
}
