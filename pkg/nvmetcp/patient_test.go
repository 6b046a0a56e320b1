package nvmetcp

import (
	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// patient is a sink for tests that wait for each command.
type patient struct {
	done     chan *blk.Command
	evidence chan blk.Evidence
	lost     chan []*blk.Command
}

func newPatient() *patient {
	return &patient{make(chan *blk.Command, 4096), make(chan blk.Evidence, 4096), make(chan []*blk.Command, 4)}
}

func (p *patient) Complete(c *blk.Command) { p.done <- c }

func (p *patient) BatchEnd(uint64) {}

func (p *patient) Evidence(e blk.Evidence) { p.evidence <- e }

func (p *patient) Lost(first *blk.Command, _ error) {
	var l []*blk.Command
	for c := first; c != nil; c = c.Next {
		l = append(l, c)
	}
	p.lost <- l
}
