package iscsi

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// Portal is one address of a target.
type Portal struct {
	Address string // host:port
	TPGT    uint16 // portal group
}

// DiscoveredTarget is one target a SendTargets named. Without portals it is
// reached where it was asked for (RFC 7143 appendix C).
type DiscoveredTarget struct {
	Name    string
	Portals []Portal
}

// textExchange joins the legs of one text negotiation (RFC 7143 11.10, 11.11).
type textExchange struct {
	first []byte
	text  []byte
	ttt   uint32
	legs  int
}

func newTextExchange(key, value string) *textExchange {
	return &textExchange{first: pdu.AppendPair(nil, key, value), ttt: pdu.NoTag}
}

// request is the data and target task tag of the next Text Request: empty
// after the first.
func (x *textExchange) request() (data []byte, ttt uint32) {
	if x.legs == 0 {
		return x.first, pdu.NoTag
	}
	return nil, x.ttt
}

// answer takes one Text Response. whole is not nil when it was the last. A key
// may be cut anywhere: it is joined before it is parsed.
func (x *textExchange) answer(data []byte, final, more bool, ttt uint32) (whole []byte, err error) {
	x.legs++
	switch {
	case len(x.text)+len(data) > maxTextBytes || x.legs > maxTextLegs:
		return nil, violation("a text answer of more than %d bytes or %d PDUs", maxTextBytes, maxTextLegs)
	case final && (more || ttt != pdu.NoTag):
		return nil, violation("a final Text Response that announces more")
	case !final && ttt == pdu.NoTag:
		return nil, violation("a Text Response that is not final and has no tag to go on with")
	}
	x.text = append(x.text, data...)
	x.ttt = ttt
	if !final {
		return nil, nil
	}
	if x.text == nil {
		x.text = []byte{}
	}
	return x.text, nil
}

// parseTargets reads the answer to SendTargets.
func parseTargets(text []byte) ([]DiscoveredTarget, error) {
	var out []DiscoveredTarget
	for len(text) > 0 {
		p, rest, err := pdu.NextPair(text)
		if err != nil {
			return nil, violation("%v", err)
		}
		text = rest
		switch {
		case p.Key == "TargetName":
			if !validName(p.Value) || len(out) == maxTargets {
				return nil, violation("target name %.80q, or more than %d targets", p.Value, maxTargets)
			}
			out = append(out, DiscoveredTarget{Name: p.Value})
		case p.Key == "TargetAddress" && len(out) > 0:
			t := &out[len(out)-1]
			a, err := parseAddress(p.Value)
			if err == nil && len(t.Portals) == maxPortals {
				err = fmt.Errorf("more than %d portals", maxPortals)
			}
			if err != nil {
				return nil, violation("%s: %v", t.Name, err)
			}
			t.Portals = append(t.Portals, a)
		case p.Key == "TargetAddress":
			return nil, violation("TargetAddress before any TargetName")
		}
	}
	return out, nil
}
