package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
)

// Files are the PEM files of one end of a connection.
type Files struct {
	Cert, Key string // its own certificate, intermediate ones after it, and the key
	CA        string // authorities that the other end's certificate must come from
}

// Identity is what the files have: one moment's content of all three.
type Identity struct {
	Cert  tls.Certificate
	Peers *x509.CertPool
}

// Source reads files again when they change. Its methods may be called from any
// goroutine.
type Source struct {
	files  Files
	failed func(error)

	mu    sync.Mutex
	state [3]stamp
	now   *Identity
}

// stamp tells one content of a file from another, without reading it.
type stamp struct {
	inode    uint64
	sec, sub int64
	size     int64
}

// Open reads the files. failed, if not nil, is told when a later content cannot
// be used, once for each; the one before is used on.
func Open(files Files, failed func(error)) (*Source, error) {
	s := &Source{files: files, failed: failed, state: stamps(files)}
	var err error
	s.now, err = read(files)
	return s, err
}

// Identity is the latest content that could be used.
func (s *Source) Identity() *Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := stamps(s.files)
	if state == s.state {
		return s.now
	}
	// What changes while it is read has another stamp next time.
	s.state = state
	next, err := read(s.files)
	if err == nil {
		s.now = next
	} else if s.failed != nil {
		s.failed(fmt.Errorf("certificates changed, and those from before are used on: %w", err))
	}
	return s.now
}

func stamps(f Files) (out [3]stamp) {
	for i, path := range []string{f.Cert, f.Key, f.CA} {
		fi, err := os.Stat(path)
		if err != nil {
			continue
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			out[i] = stamp{st.Ino, int64(st.Ctim.Sec), int64(st.Ctim.Nsec), fi.Size()} //nolint:unconvert // differs by architecture
		}
	}
	return out
}

func read(f Files) (*Identity, error) {
	pair, err := readPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	b, err := durable.Read(f.CA, maxFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s: no certificate in PEM form", f.CA)
	}
	return &Identity{Cert: pair, Peers: pool}, nil
}

func readPair(cert, key string) (tls.Certificate, error) {
	c, err := durable.Read(cert, maxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	if fi, err := os.Stat(key); err == nil && fi.Mode().Perm()&0o007 != 0 {
		return tls.Certificate{}, fmt.Errorf("%s has mode %#o: everybody on this machine may use it (chmod 600)", key, fi.Mode().Perm())
	}
	k, err := durable.Read(key, maxFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	pair, err := tls.X509KeyPair(c, k)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s with %s: %w", cert, key, err)
	}
	return pair, nil
}
