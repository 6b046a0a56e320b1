package datapath

import (
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// crossed is a client whose answer comes while another reader of the same path
// ends its batch.
type crossed struct {
	lv                *live
	answered, flushed bool
}

func (c *crossed) Complete(*blk.Request) {
	c.lv.BatchEnd(1)
	c.answered = true
}

func (c *crossed) Flush() { c.flushed = c.answered }

func TestAnAnswerIsFlushedAlsoWhenAnotherReaderEndsItsBatchMeanwhile(t *testing.T) {
	d, l, reqs, _ := nullRig(t, 1)
	c := &crossed{lv: d.table.Load().best()[0]}
	reqs[0].Op, reqs[0].Owner = blk.Read, c
	l.Submit(&reqs[0])
	if !c.answered || !c.flushed {
		t.Fatalf("answered %v, flushed after it %v", c.answered, c.flushed)
	}
}
