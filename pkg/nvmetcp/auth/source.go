package auth

import (
	"encoding/binary"
	"sync"

	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

// Source is the randomness, the sequence numbers and the transaction numbers
// of all exchanges of a process, and recognizes its own challenges when they
// come back. Its zero value is ready; share one.
type Source struct {
	secret.Challenges

	mu  sync.Mutex
	seq uint32
	tid uint16
}

// transaction numbers an exchange: unique among those under way to a controller
// (NVMe Base 2.1 section 8.3.4.5.2).
func (s *Source) transaction() uint16 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tid++
	return s.tid
}

// sequence begins at random, rises, and is never 0 (NVMe Base 2.1 section
// 8.3.4.5.3): 0 says that no proof is asked for.
func (s *Source) sequence() (uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seq == 0 {
		var b [4]byte
		if err := s.Random(b[:]); err != nil {
			return 0, err
		}
		s.seq = binary.LittleEndian.Uint32(b[:])
	}
	if s.seq++; s.seq == 0 {
		s.seq = 1
	}
	return s.seq, nil
}
