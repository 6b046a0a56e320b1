// Command pod is what runs in the pods of the tests.
//
//	pod pause          nothing, for ever
//	pod write FILE     writes numbered records round and round, each to the storage
//	                   before the next, and prints the last number every second
//	pod check FILE N   wants every record whole, none from an earlier round, and
//	                   record N or a later one
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	slots = 512  // records in a file
	size  = 4096 // bytes of a record
	pause = 5 * time.Millisecond
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("pod:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	told := make(chan os.Signal, 1)
	signal.Notify(told, syscall.SIGTERM, syscall.SIGINT)
	switch {
	case len(args) == 1 && args[0] == "pause":
		<-told
		return nil
	case len(args) == 2 && args[0] == "write":
		return write(args[1], told)
	case len(args) == 3 && args[0] == "check":
		n, err := strconv.ParseUint(args[2], 10, 64)
		if err != nil {
			return err
		}
		return check(args[1], n)
	}
	return errors.New("usage: pod pause | write FILE | check FILE N")
}

// record is number n: the number, and the same bytes of it again and again.
func record(n uint64) []byte {
	b := make([]byte, size)
	for i := 0; i+8 <= size; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], n*0x9E3779B97F4A7C15+uint64(i))
	}
	binary.LittleEndian.PutUint64(b, n)
	binary.LittleEndian.PutUint32(b[size-4:], crc32.ChecksumIEEE(b[:size-4]))
	return b
}

// number of a record; 0 if there was never one.
func number(b []byte) (uint64, error) {
	n := binary.LittleEndian.Uint64(b)
	if n != 0 && binary.LittleEndian.Uint32(b[size-4:]) != crc32.ChecksumIEEE(b[:size-4]) {
		return n, fmt.Errorf("record %d is damaged", n)
	}
	return n, nil
}

func write(path string, told <-chan os.Signal) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_DSYNC, 0o644)
	if err != nil {
		return err
	}
	last, err := highest(f)
	if err != nil {
		return err
	}
	fmt.Println("acked", last)
	tick, report := time.NewTicker(pause), time.NewTicker(time.Second)
	var worst time.Duration
	for {
		select {
		case <-told:
			fmt.Println("acked", last)
			return f.Close()
		case <-report.C:
			fmt.Println("acked", last, "longest", worst.Round(time.Millisecond))
			worst = 0
		case <-tick.C:
			begin := time.Now()
			if _, err := f.WriteAt(record(last+1), int64((last+1)%slots)*size); err != nil {
				return err
			}
			last, worst = last+1, max(worst, time.Since(begin))
		}
	}
}

// highest number in a file, of records that are all whole and of one round.
func highest(f *os.File) (uint64, error) {
	all := make([]uint64, slots)
	var top uint64
	b := make([]byte, size)
	for i := range all {
		_, err := f.ReadAt(b, int64(i)*size)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			all[i], err = number(b)
		}
		if err != nil {
			return 0, fmt.Errorf("%s, record at %d: %w", f.Name(), i, err)
		}
		top = max(top, all[i])
	}
	for i, n := range all {
		want := top - (top-uint64(i))%slots
		if uint64(i) > top {
			want = 0
		}
		if want > 0 && n != want {
			return 0, fmt.Errorf("%s: at %d is record %d, not %d: a write was lost, or came late", f.Name(), i, n, want)
		}
	}
	return top, nil
}

func check(path string, least uint64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	top, err := highest(f)
	if err == nil && top < least {
		err = fmt.Errorf("%s: the last record is %d, and %d was acknowledged", path, top, least)
	}
	if err != nil {
		return err
	}
	fmt.Println("whole", top)
	return f.Close()
}
