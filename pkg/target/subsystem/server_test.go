package subsystem

import (
	"io"
	"net"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/nvmetcp/pdu"
	"github.com/csi-mpath/csi-mpath/pkg/target"
)

func TestAServerAnswersOverTCP(t *testing.T) {
	s, err := New(Config{Namespaces: []Namespace{{ID: 1, Store: target.NewRAM(1 << 20)}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	p, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	b := make([]byte, pdu.InitLen)
	plain.Put(b)
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	var resp pdu.ICResp
	if err := resp.Decode(b); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	if _, err := c.Read(b); err == nil {
		t.Fatal("the connection lives")
	}
}
