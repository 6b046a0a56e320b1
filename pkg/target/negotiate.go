package target

import (
	"strconv"
	"strings"

	"github.com/csi-mpath/csi-mpath/pkg/iscsi/pdu"
)

// params are the operational values of one connection (RFC 7143 13).
type params struct {
	layout                  pdu.Layout
	maxRecv, maxSend        uint32 // longest data segment from and to the initiator, bytes
	maxBurst, firstBurst    uint32
	initialR2T, noImmediate bool
	maxR2T                  int // R2Ts outstanding of one command
	cfg                     *Config
}

func defaultParams(cfg *Config) params {
	return params{maxRecv: pdu.DefaultRecvDataSegment, maxSend: pdu.DefaultRecvDataSegment,
		maxBurst: min(262144, cfg.MaxBurst), firstBurst: min(65536, cfg.FirstBurst), initialR2T: true,
		noImmediate: cfg.NoImmediate, maxR2T: 1, cfg: cfg}
}

// negotiate answers one key; an empty answer means none is due.
func (p *params) negotiate(k pdu.Pair) (answer string) {
	if k.Value == "NotUnderstood" || k.Value == "Irrelevant" || k.Value == "Reject" {
		return ""
	}
	switch k.Key {
	case "InitiatorAlias", "InitiatorName", "TargetName", "SessionType", "TargetAlias":
		return ""
	case "MaxRecvDataSegmentLength":
		return p.take(k)
	case "HeaderDigest":
		return p.digest(k.Value, &p.layout.HeaderDigest)
	case "DataDigest":
		return p.digest(k.Value, &p.layout.DataDigest)
	case "InitialR2T":
		return p.boolean(k.Value, func(v bool) bool { p.initialR2T = v || p.cfg.InitialR2T; return p.initialR2T })
	case "ImmediateData":
		return p.boolean(k.Value, func(v bool) bool { p.noImmediate = !v || p.cfg.NoImmediate; return !p.noImmediate })
	case "DataPDUInOrder", "DataSequenceInOrder":
		return p.boolean(k.Value, func(bool) bool { return true })
	case "IFMarker", "OFMarker":
		return p.boolean(k.Value, func(bool) bool { return false })
	}
	return p.numeric(k)
}

// numeric handles the keys whose result is the smaller or larger number.
func (p *params) numeric(k pdu.Pair) string {
	number := func(lo, hi uint32, f func(v uint32) uint32) string {
		v, err := pdu.ParseNumber(k.Value, hi)
		if err != nil || v < lo {
			return "Reject"
		}
		return strconv.Itoa(int(f(v)))
	}
	switch k.Key {
	case "MaxBurstLength":
		return number(512, pdu.MaxDataSegment, func(v uint32) uint32 { p.maxBurst = min(v, p.cfg.MaxBurst); return p.maxBurst })
	case "FirstBurstLength":
		return number(512, pdu.MaxDataSegment, func(v uint32) uint32 { p.firstBurst = min(v, p.cfg.FirstBurst); return p.firstBurst })
	case "MaxOutstandingR2T":
		return number(1, 65535, func(v uint32) uint32 {
			p.maxR2T = int(min(v, uint32(p.cfg.MaxR2T)))
			return uint32(p.maxR2T)
		})
	case "MaxConnections":
		return number(1, 65535, func(uint32) uint32 { return 1 })
	case "DefaultTime2Wait":
		return number(0, 3600, func(v uint32) uint32 { return v })
	case "DefaultTime2Retain":
		return number(0, 3600, func(uint32) uint32 { return 0 })
	case "ErrorRecoveryLevel":
		return number(0, 2, func(uint32) uint32 { return 0 })
	case "iSCSIProtocolLevel":
		return number(0, 31, func(v uint32) uint32 { return min(v, 1) })
	case "TaskReporting":
		return "RFC3720"
	case "OFMarkInt", "IFMarkInt":
		return "Reject"
	}
	return "NotUnderstood"
}

// take is the initiator's declaration of what it receives.
func (p *params) take(k pdu.Pair) string {
	v, err := pdu.ParseNumber(k.Value, pdu.MaxDataSegment)
	if err != nil || v < pdu.MinRecvDataSegment {
		return "Reject"
	}
	p.maxSend = v
	return ""
}

func (p *params) digest(list string, on *bool) string {
	for v := range strings.SplitSeq(list, ",") {
		switch {
		case v == "None":
			*on = false
			return v
		case v == "CRC32C" && !p.cfg.NoDigests:
			*on = true
			return v
		}
	}
	return "Reject"
}

func (p *params) boolean(s string, f func(bool) bool) string {
	v, err := pdu.ParseBool(s)
	if err != nil {
		return "Reject"
	}
	return pdu.FormatBool(f(v))
}
