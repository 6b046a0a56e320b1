package iscsi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// Params are the values a login agreed on.
type Params struct {
	pdu.Layout
	InitialR2T, ImmediateData bool
	MaxRecv                   uint32 // largest data segment we take, bytes
	MaxSend                   uint32 // largest data segment the target takes, bytes
	MaxBurst, FirstBurst      uint32 // bytes
	MaxOutstandingR2T         uint32
	Time2Wait, Time2Retain    uint32 // seconds
}

// rule says how a key is negotiated (RFC 7143 13).
type rule uint8

const (
	ruleList rule = iota // digest lists
	ruleOr               // boolean, result Yes if either says so
	ruleAnd              // boolean, result No if either says so
	ruleMin
	ruleMax
)

// key is one negotiable key: its rule, bounds, default and our offer.
type key struct {
	name    string
	rule    rule
	lo, hi  uint32
	def     uint32 // when the target does not understand the key; booleans 0, 1
	offer   uint32
	offered bool
	settled bool
	text    string // of the last value taken
	value   uint32 // result
}

// negotiator settles the operational keys of one login: each once.
type negotiator struct {
	keys    []key
	maxRecv uint32 // ours, declared
	maxSend uint32 // theirs, declared
	tpgt    uint16
	hasTPGT bool
}

func newNegotiator(c *Config, discovery bool) *negotiator {
	hd, dd := uint32(c.HeaderDigest), uint32(c.DataDigest)
	if discovery {
		hd, dd = 0, 0 // some targets cannot do digests there
	}
	const top = pdu.MaxDataSegment
	return &negotiator{maxRecv: c.MaxRecv, maxSend: pdu.DefaultRecvDataSegment, keys: []key{
		{name: "HeaderDigest", rule: ruleList, offer: hd},
		{name: "DataDigest", rule: ruleList, offer: dd},
		{name: "MaxConnections", rule: ruleMin, lo: 1, hi: 65535, def: 1, offer: 1},
		{name: "InitialR2T", rule: ruleOr, def: 1, offer: num(c.InitialR2T)},
		{name: "ImmediateData", rule: ruleAnd, def: 1, offer: num(!c.NoImmediate)},
		{name: "MaxBurstLength", rule: ruleMin, lo: 512, hi: top, def: 262144, offer: c.MaxBurst},
		{name: "FirstBurstLength", rule: ruleMin, lo: 512, hi: top, def: 65536, offer: c.FirstBurst},
		{name: "DefaultTime2Wait", rule: ruleMax, hi: 3600, def: 2, offer: offerTime2Wait},
		{name: "DefaultTime2Retain", rule: ruleMin, hi: 3600, def: 20, offer: offerTime2Retain},
		{name: "MaxOutstandingR2T", rule: ruleMin, lo: 1, hi: 65535, def: 1, offer: offerOutstandingR2T},
		{name: "DataPDUInOrder", rule: ruleOr, def: 1, offer: 1},
		{name: "DataSequenceInOrder", rule: ruleOr, def: 1, offer: 1},
		{name: "ErrorRecoveryLevel", rule: ruleMin, hi: 2, offer: 0},
	}}
}

func num(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func (n *negotiator) find(name string) *key {
	for i := range n.keys {
		if n.keys[i].name == name {
			return &n.keys[i]
		}
	}
	return nil
}

// offers returns all keys not settled yet, at their value, and what we
// declare: every key is sent, some targets read a missing one as 0.
func (n *negotiator) offers() pdu.Keys {
	out := pdu.Keys{{Key: "MaxRecvDataSegmentLength", Value: strconv.FormatUint(uint64(n.maxRecv), 10)}}
	for i := range n.keys {
		k := &n.keys[i]
		if k.settled {
			continue
		}
		k.offered = true
		out = append(out, pdu.Pair{Key: k.name, Value: k.format(k.offer)})
	}
	return out
}

// take handles one key from the target. reply is the answer to a key the
// target started itself; empty when there is nothing to say.
func (n *negotiator) take(p pdu.Pair) (reply string, err error) {
	switch p.Key {
	case "MaxRecvDataSegmentLength": // declared, last one wins
		if noValue(p.Value) {
			return "", nil
		}
		n.maxSend, err = pdu.ParseNumber(p.Value, pdu.MaxDataSegment)
		if err == nil && n.maxSend < pdu.MinRecvDataSegment {
			err = fmt.Errorf("%d is below %d", n.maxSend, pdu.MinRecvDataSegment)
		}
	case "TargetPortalGroupTag":
		var v uint32
		v, err = pdu.ParseNumber(p.Value, 65535)
		n.tpgt, n.hasTPGT = uint16(v), err == nil
	case "TargetAlias", "TargetAddress", "TargetName", "InitiatorAlias":
	default:
		if k := n.find(p.Key); k != nil {
			reply, err = k.take(p.Value)
		} else if p.Value != "NotUnderstood" {
			reply = "NotUnderstood"
		}
	}
	if err != nil {
		err = violation("%s=%.40s: %v", p.Key, p.Value, err)
	}
	return reply, err
}

// noValue reports an answer that leaves a key at its default.
func noValue(v string) bool { return v == "NotUnderstood" || v == "Irrelevant" || v == "Reject" }

// take settles the key: by the answer to our offer, or by answering the
// target's.
func (k *key) take(v string) (reply string, err error) {
	if k.settled {
		if v != k.text {
			return "", fmt.Errorf("negotiated again, was %s", k.text)
		}
		return "", nil
	}
	k.settled, k.text = true, v
	if noValue(v) || v == "None" {
		k.value = k.def
		return "", nil
	}
	theirs, err := k.parse(v)
	if err != nil {
		return "", err
	}
	k.value = k.combine(theirs)
	if k.offered {
		if k.value != theirs {
			return "", fmt.Errorf("does not fit our offer %s", k.format(k.offer))
		}
		return "", nil
	}
	k.text = k.format(k.value)
	return k.text, nil
}

// combine is the result of our offer and theirs.
func (k *key) combine(theirs uint32) uint32 {
	switch k.rule {
	case ruleOr:
		return k.offer | theirs
	case ruleAnd, ruleList:
		return k.offer & theirs
	case ruleMax:
		return max(k.offer, theirs)
	default:
		return min(k.offer, theirs)
	}
}

// parse reads a value. A list the target starts offers CRC32C if it is in it.
func (k *key) parse(v string) (uint32, error) {
	switch k.rule {
	case ruleOr, ruleAnd:
		b, err := pdu.ParseBool(v)
		return num(b), err
	case ruleList:
		if k.offered && v != "CRC32C" {
			return 0, fmt.Errorf("not offered")
		}
		return num(strings.Contains(","+v+",", ",CRC32C,")), nil
	}
	n, err := pdu.ParseNumber(v, k.hi)
	if err == nil && n < k.lo {
		err = fmt.Errorf("below %d", k.lo)
	}
	return n, err
}

func (k *key) format(v uint32) string {
	switch k.rule {
	case ruleOr, ruleAnd:
		return pdu.FormatBool(v != 0)
	case ruleList:
		if v != 0 {
			return "CRC32C"
		}
		return "None"
	}
	return strconv.FormatUint(uint64(v), 10)
}

// result is what was agreed; keys nobody answered have their default.
func (n *negotiator) result() (Params, error) {
	v := func(name string) uint32 {
		k := n.find(name)
		if !k.settled {
			return k.def
		}
		return k.value
	}
	for _, name := range []string{"HeaderDigest", "DataDigest"} {
		if n.find(name).offer != v(name) {
			return Params{}, fmt.Errorf("the target refuses %s=CRC32C: enable digests on the target, or set none here", name)
		}
	}
	p := Params{
		Layout:     pdu.Layout{HeaderDigest: v("HeaderDigest") != 0, DataDigest: v("DataDigest") != 0},
		InitialR2T: v("InitialR2T") != 0, ImmediateData: v("ImmediateData") != 0,
		MaxRecv: n.maxRecv, MaxSend: n.maxSend, MaxBurst: v("MaxBurstLength"), FirstBurst: v("FirstBurstLength"),
		MaxOutstandingR2T: min(v("MaxOutstandingR2T"), offerOutstandingR2T),
		Time2Wait:         v("DefaultTime2Wait"), Time2Retain: v("DefaultTime2Retain"),
	}
	p.FirstBurst = min(p.FirstBurst, p.MaxBurst)
	return p, nil
}
