package poll

import (
	"runtime"
	"testing"
	"time"
)

const us = time.Microsecond

func TestAFixedTimeIsTheBudget(t *testing.T) {
	var s spin
	if s.budget(0, 0) != 0 || s.budget(Polling(50*us), time.Hour) != 50*us {
		t.Fatal(s.budget(Polling(50*us), time.Hour))
	}
}

func TestShortWaitsOpenTheWindowUpToItsBound(t *testing.T) {
	var s spin
	for range 3 {
		s.waited(60 * us)
	}
	if got := s.budget(PollAdaptive, 0); got != 80*us && got != 40*us {
		t.Fatalf("window %v after three waits of 60 us", got)
	}
	for range 20 {
		s.waited(150 * us)
	}
	if got := s.budget(PollAdaptive, 0); got < 150*us || got > spinMax {
		t.Fatalf("window %v after waits of 150 us", got)
	}
}

func TestLongWaitsCloseTheWindow(t *testing.T) {
	s := spin{window: spinMax}
	for range 6 {
		s.waited(time.Millisecond)
	}
	if got := s.budget(PollAdaptive, 0); got != 0 {
		t.Fatalf("window %v", got)
	}
}

func TestAStolenCPUStopsLookingForLongerAndLonger(t *testing.T) {
	s := spin{window: 100 * us}
	now, last := time.Duration(0), time.Duration(0)
	for range 4 {
		if s.lookTook(time.Millisecond, now) {
			t.Fatal("goes on looking")
		}
		if s.budget(PollAdaptive, now+time.Microsecond) != 0 {
			t.Fatal("looks again at once")
		}
		pause := s.until - now
		if pause < 2*last && pause < shyMax {
			t.Fatalf("pause %v after %v", pause, last)
		}
		last, now = pause, s.until
	}
	if s.budget(PollAdaptive, now) == 0 {
		t.Fatal("never looks again")
	}
	s.calm(now + 2*last)
	s.lookTook(time.Millisecond, now+2*last)
	if got := s.until - (now + 2*last); got != shyMin {
		t.Fatalf("an old theft is not forgotten: pause %v", got)
	}
}

func TestReadersThatLookLeaveACPU(t *testing.T) {
	n := 0
	for range 2 * runtime.GOMAXPROCS(0) {
		if mayLook() {
			n++
		}
	}
	spinning.Add(int32(-n))
	if n != runtime.GOMAXPROCS(0)-1 {
		t.Fatalf("%d readers look on %d CPUs", n, runtime.GOMAXPROCS(0))
	}
}

func TestAPollingReaderGetsEveryByteAndParksWhenNoneComes(t *testing.T) {
	for _, p := range []Polling{PollAdaptive, Polling(100 * us)} {
		s, peer := pair(t)
		s.SetPolling(p)
		go func() {
			for i := range 2000 {
				if _, err := peer.Write([]byte{byte(i)}); err != nil {
					return
				}
			}
			_ = peer.Close()
		}()
		buf := make([]byte, 64)
		next := 0
		for {
			n, err := s.Recv(buf, nil)
			if err != nil {
				break
			}
			for _, b := range buf[:n] {
				if b != byte(next) {
					t.Fatalf("byte %d is %d", next, b)
				}
				next++
			}
		}
		if next != 2000 {
			t.Fatalf("%d of 2000 bytes", next)
		}
	}
}

func TestAbortEndsAReaderThatPolls(t *testing.T) {
	s, _ := pair(t)
	s.SetPolling(MaxPolling)
	done := make(chan error, 1)
	go func() { _, err := s.Recv(make([]byte, 8), nil); done <- err }()
	_ = s.Abort()
	if err := <-done; err == nil {
		t.Fatal("no error")
	}
}

func TestADeadlineWakesAReaderThatPolls(t *testing.T) {
	s, _ := pair(t)
	s.SetPolling(PollAdaptive)
	done := make(chan error, 1)
	go func() { _, err := s.Recv(make([]byte, 8), nil); done <- err }()
	if err := s.Conn().SetReadDeadline(time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Fatal("no error")
	}
}
