package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"

	"github.com/csi-mpath/csi-mpath/pkg/nbd/proto"
)

// errAborted ends a handshake that the client ended.
var errAborted = errors.New("nbd: client left during the handshake")

// handshake is the server's side of the fixed newstyle handshake, as a pure
// machine: bytes in through step, bytes out in out.
type handshake struct {
	exports map[string]Export
	// open is asked before a chosen export is granted; its error refuses it.
	open func(Export) error

	greeted    bool
	noZeroes   bool
	structured bool
	options    int
	opt        proto.Option
	skip       uint32    // bytes of a refused option still to be read past
	skipRep    proto.Rep // its answer afterwards

	// out is what is to be sent; the shell empties it.
	out []byte
	// chosen is the export of the transmission phase, once there is one.
	chosen Export
}

func newHandshake(exports map[string]Export, open func(Export) error) *handshake {
	return &handshake{
		exports: exports, open: open,
		out: proto.AppendGreeting(nil, proto.FlagFixedNewstyle|proto.FlagNoZeroes),
	}
}

// maxHandshakeInput is the most bytes step needs at once.
const maxHandshakeInput = proto.OptionLen + proto.MaxOption

// step consumes what it can of in and returns how much; 0 means that it needs
// more, never more than maxHandshakeInput. The handshake is over when chosen
// is set or an error returned; out is then still to be sent.
func (h *handshake) step(in []byte) (int, error) {
	switch {
	case !h.greeted:
		if len(in) < proto.ClientFlagsLen {
			return 0, nil
		}
		return proto.ClientFlagsLen, h.clientFlags(binary.BigEndian.Uint32(in))
	case h.skip > 0:
		n := min(uint32(len(in)), h.skip)
		if h.skip -= n; h.skip == 0 {
			h.reply(h.skipRep, "option is longer than this server reads")
		}
		return int(n), nil
	case len(in) < proto.OptionLen:
		return 0, nil
	}
	opt, length, err := proto.ParseOption(in)
	if err != nil {
		return 0, err
	}
	if length <= proto.MaxOption {
		if uint32(len(in)-proto.OptionLen) < length {
			return 0, nil
		}
		h.opt = opt
		return proto.OptionLen + int(length), h.option(in[proto.OptionLen : proto.OptionLen+length])
	}
	return proto.OptionLen, h.oversize(opt, length)
}

func (h *handshake) clientFlags(f uint32) error {
	if f&^proto.ClientFlags != 0 {
		return fmt.Errorf("nbd: client sets unknown handshake flags %#x", f)
	}
	h.greeted, h.noZeroes = true, f&proto.FlagNoZeroes != 0
	return nil
}

// oversize reads past an option that is too long to look at (case C-01); one
// that is absurd, or EXPORT_NAME, which has no error answer, ends it.
func (h *handshake) oversize(opt proto.Option, length uint32) error {
	if length > proto.MaxSkippedOption || opt == proto.OptExportName {
		return fmt.Errorf("nbd: client sent option %d with %d bytes", opt, length)
	}
	h.opt, h.skip, h.skipRep = opt, length, proto.RepErrUnsup
	switch opt {
	case proto.OptInfo, proto.OptGo:
		h.skipRep = proto.RepErrTooBig
	case proto.OptList, proto.OptStructuredReply, proto.OptAbort:
		h.skipRep = proto.RepErrInvalid
	}
	return h.count()
}

func (h *handshake) count() error {
	if h.options++; h.options > proto.MaxOptions {
		return fmt.Errorf("nbd: client sent more than %d options", proto.MaxOptions)
	}
	return nil
}

func (h *handshake) option(data []byte) error {
	if err := h.count(); err != nil {
		return err
	}
	switch h.opt {
	case proto.OptExportName:
		return h.exportName(data)
	case proto.OptAbort:
		h.reply(proto.RepAck, "")
		return errAborted
	case proto.OptInfo, proto.OptGo:
		h.infoOrGo(data)
	case proto.OptList, proto.OptStructuredReply:
		if len(data) != 0 {
			h.reply(proto.RepErrInvalid, "option takes no data")
			return nil
		}
		if h.opt == proto.OptList {
			h.list()
		} else {
			h.structured = true
		}
		h.reply(proto.RepAck, "")
	default:
		// Empty, as some clients expect of probes (case C-04).
		h.reply(proto.RepErrUnsup, "")
	}
	return nil
}

func (h *handshake) reply(rep proto.Rep, text string) {
	h.out = proto.AppendRep(h.out, h.opt, rep, uint32(len(text)))
	h.out = append(h.out, text...)
}

func (h *handshake) list() {
	names := make([]string, 0, len(h.exports))
	for name := range h.exports {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		h.out = proto.AppendServer(h.out, name)
	}
}

// find looks an export up. The empty name means the only one there is.
func (h *handshake) find(name []byte) Export {
	if e := h.exports[string(name)]; e != nil || len(name) != 0 || len(h.exports) != 1 {
		return e
	}
	for _, e := range h.exports {
		return e
	}
	return nil
}

// exportName has no way to say no but to close (case C-03).
func (h *handshake) exportName(name []byte) error {
	if err := proto.CheckName(name); err != nil {
		return fmt.Errorf("nbd: client asks for an export: %w", err)
	}
	e := h.find(name)
	if e == nil {
		return fmt.Errorf("nbd: client asks for unknown export %.64q", name)
	}
	if err := h.open(e); err != nil {
		return err
	}
	info := e.Info()
	h.out = proto.AppendExport(h.out, info.size(), info.flags(h.structured))
	if !h.noZeroes {
		h.out = append(h.out, make([]byte, proto.ExportTail)...)
	}
	h.chosen = e
	return nil
}

func (h *handshake) infoOrGo(data []byte) {
	name, infos, err := proto.ParseGo(data)
	switch {
	case errors.Is(err, proto.ErrNameTooBig):
		h.reply(proto.RepErrTooBig, err.Error())
		return
	case err != nil:
		h.reply(proto.RepErrInvalid, err.Error())
		return
	}
	e := h.find(name)
	if e == nil {
		h.reply(proto.RepErrUnknown, "no such export")
		return
	}
	if h.opt == proto.OptGo {
		if err := h.open(e); err != nil {
			h.reply(proto.RepErrShutdown, "the export cannot be opened now")
			return
		}
		h.chosen = e
	}
	h.describe(e.Info(), infos)
	h.reply(proto.RepAck, "")
}

// describe sends what INFO and GO must, and what the client asked for.
func (h *handshake) describe(i Info, infos []byte) {
	h.out = proto.AppendInfoExport(h.out, h.opt, i.size(), i.flags(h.structured))
	if proto.HasInfo(infos, proto.InfoName) {
		h.out = proto.AppendInfoText(h.out, h.opt, proto.InfoName, clip(i.Name))
	}
	if proto.HasInfo(infos, proto.InfoDescription) {
		h.out = proto.AppendInfoText(h.out, h.opt, proto.InfoDescription, clip(i.Description))
	}
	h.out = proto.AppendInfoBlockSize(h.out, h.opt, i.block(), i.preferred(), proto.MaxPayload)
}

// clip keeps a text within the protocol's limit for strings.
func clip(s string) string { return s[:min(len(s), proto.MaxName)] }
