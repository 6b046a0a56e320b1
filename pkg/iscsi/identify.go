package iscsi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
	"github.com/csi-mpath/csi-mpath/pkg/scsi"
)

// Identified is what Identify learned.
type Identified struct {
	scsi.Profile
	// Evidence is what the unit attentions said that were answered first: an
	// identification must not swallow a lost cache or reservation (I4).
	Evidence blk.Evidence
}

// errRefused: the unit does not offer the command or page.
var errRefused = errors.New("refused by the unit")

// Identify reads everything there is to know about a unit through this path:
// INQUIRY, VPD pages 00h, 80h, 83h, B0h-B2h, capacity, caching page, and port
// groups when the unit has asymmetric access. It answers unit attentions by
// asking again and waits out a unit that is busy, both bounded. It begins again
// when the unit says that it became another one meanwhile. With an error the
// result, if any, holds nothing but the evidence seen until then.
func (s *Session) Identify(ctx context.Context, lun scsi.LUN) (*Identified, error) {
	var seen blk.Evidence
	for range maxIdentifications {
		q := &query{s: s, ctx: ctx, lun: lun}
		id := &q.id
		id.Target, id.LUN = s.cfg.TargetName, lun
		for _, step := range []func() error{q.inquiry, q.pages, q.capacity, q.caching, q.portGroups, id.Check} {
			if err := step(); err != nil {
				return &Identified{Evidence: seen | id.Evidence}, s.cfg.wrap(fmt.Errorf("identify LUN %v: %w", lun, err))
			}
		}
		seen |= id.Evidence
		id.Evidence = seen &^ blk.IdentityChanged
		if seen&blk.IdentityChanged == 0 {
			return id, nil
		}
		// What was read before the unit said so may be another one's (I1).
		seen &^= blk.IdentityChanged
	}
	return nil, s.cfg.errorf("identify LUN %v: it changed %d times while it was read", lun, maxIdentifications)
}

// query asks one unit.
type query struct {
	s   *Session
	ctx context.Context
	lun scsi.LUN
	id  Identified
	cdb [scsi.CDBLen]byte
}

// ask sends q.cdb until it is answered with more than a unit attention or
// busy. errRefused is an ILLEGAL REQUEST.
func (q *query) ask(what string, n int, in []byte) ([]byte, error) { return q.exec(what, n, in, nil) }

// exec is ask for a command that may have data for the unit.
func (q *query) exec(what string, n int, in, out []byte) ([]byte, error) {
	attentions, waits := 0, 0
	for {
		r, err := q.s.Exec(q.ctx, q.lun, q.cdb[:n], in, out)
		if err != nil {
			return nil, err
		}
		v := scsi.Classify(blk.Read, r.Status, r.Sense)
		q.id.Evidence |= v.Evidence
		sense, _ := scsi.ParseSense(r.Sense)
		switch {
		case v.Class == blk.Good:
			return in[:min(r.N, len(in))], nil
		case r.Status == scsi.StatusReservationConflict:
			return nil, fmt.Errorf("%s: %w", what, scsi.ErrConflict)
		case sense.Key == scsi.KeyIllegalRequest && sense.ASC == 0x25: // LOGICAL UNIT NOT SUPPORTED
			return nil, fmt.Errorf("%w: %w", scsi.ErrNoUnit, senseError(what, r))
		case r.Status == scsi.StatusCheckCondition && sense.Key == scsi.KeyIllegalRequest:
			return nil, fmt.Errorf("%w: %w", errRefused, senseError(what, r))
		case v.Class == blk.Retry && attentions < maxUnitAttentions,
			sense.Key == scsi.KeyUnitAttention && attentions < maxUnitAttentions:
			attentions++
		case (v.Class == blk.Busy || v.Class == blk.RetryLater) && waits < identifyRetries:
			waits++
			if err := q.wait(identifyBackoff << min(waits, 4)); err != nil {
				return nil, err
			}
		default:
			return nil, senseError(what, r)
		}
	}
}

func (q *query) wait(d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-q.ctx.Done():
		return context.Cause(q.ctx)
	}
}

func (q *query) inquiry() (err error) {
	in, err := q.ask("INQUIRY", scsi.PutInquiry(q.cdb[:], scsi.InquiryLen), make([]byte, scsi.InquiryLen))
	if err != nil {
		return err
	}
	if q.id.Inquiry, err = scsi.ParseInquiry(in); err != nil {
		return err
	}
	if !q.id.Present() {
		return q.id.Check()
	}
	return nil
}

// page reads a whole VPD page, asking again when it is longer than expected.
func (q *query) page(page byte) ([]byte, error) {
	what := fmt.Sprintf("VPD page %02Xh", page)
	for size := scsi.InquiryLen; ; {
		in, err := q.ask(what, scsi.PutInquiryVPD(q.cdb[:], page, uint16(size)), make([]byte, size))
		if err != nil {
			return nil, err
		}
		if len(in) < 4 || in[1] != page {
			return nil, fmt.Errorf("%s: the answer is not that page", what)
		}
		want := scsi.VPDLen(in)
		if want <= len(in) {
			return in[:want], nil
		}
		if want <= size || want > maxVPD {
			return nil, fmt.Errorf("%s: %d of %d bytes", what, len(in), want)
		}
		size = want
	}
}

// pages reads what the unit lists in VPD page 00h. A unit without that list
// still may have the two pages an identity is made of.
func (q *query) pages() error {
	list := []byte{scsi.PageSerial, scsi.PageDeviceID}
	b, err := q.page(scsi.PageSupported)
	if err == nil {
		list, err = scsi.ParseSupportedPages(b)
	}
	if err != nil && !errors.Is(err, errRefused) {
		return err
	}
	for _, p := range []struct {
		page byte
		take func([]byte) error
	}{{scsi.PageSerial, q.serial}, {scsi.PageDeviceID, q.deviceID}, {scsi.PageBlockLimits, q.limits},
		{scsi.PageCharacteristics, q.rotation}, {scsi.PageProvisioning, q.provisioning}} {
		if !slices.Contains(list, p.page) {
			continue
		}
		b, err := q.page(p.page)
		if err == nil {
			err = p.take(b)
		}
		if err != nil && !errors.Is(err, errRefused) {
			return err
		}
	}
	return nil
}

func (q *query) serial(b []byte) (err error) {
	q.id.Serial, err = scsi.ParseSerial(b)
	return err
}

func (q *query) deviceID(b []byte) error {
	ds, err := scsi.ParseDeviceID(nil, b)
	if err == nil {
		q.id.SetDeviceID(ds)
	}
	return err
}

func (q *query) limits(b []byte) (err error) {
	q.id.BlockLimits, err = scsi.ParseBlockLimits(b)
	q.id.HasLimits = err == nil
	return err
}

func (q *query) rotation(b []byte) (err error) {
	q.id.Rotation, err = scsi.ParseRotationRate(b)
	return err
}

func (q *query) provisioning(b []byte) (err error) {
	q.id.Provisioning, err = scsi.ParseProvisioning(b)
	return err
}

// capacity asks READ CAPACITY(16), and (10) where that is refused.
func (q *query) capacity() error {
	in, err := q.ask("READ CAPACITY(16)", scsi.PutReadCapacity16(q.cdb[:], 32), make([]byte, 32))
	if err == nil {
		q.id.Capacity, err = scsi.ParseCapacity16(in)
		return err
	}
	if !errors.Is(err, errRefused) {
		return err
	}
	in, err = q.ask("READ CAPACITY(10)", scsi.PutReadCapacity10(q.cdb[:]), make([]byte, 8))
	if err != nil {
		return err
	}
	c, saturated, err := scsi.ParseCapacity10(in)
	if err == nil && saturated {
		err = errors.New("larger than READ CAPACITY(10) can say, and READ CAPACITY(16) is refused")
	}
	q.id.Capacity = c
	return err
}

// caching reads the caching mode page. A unit without one is taken to have a
// volatile cache: its flushes are sent (I4). So is one that another host has
// reserved: it need not answer this to whoever is not registered (SPC-4 table 66).
func (q *query) caching() error {
	ten := false
	in, err := q.ask("MODE SENSE(6)", scsi.PutModeSense6(q.cdb[:], scsi.ModeCaching, 192), make([]byte, 192))
	if errors.Is(err, errRefused) {
		ten = true
		in, err = q.ask("MODE SENSE(10)", scsi.PutModeSense10(q.cdb[:], scsi.ModeCaching, 192), make([]byte, 192))
	}
	if err == nil {
		q.id.Caching, err = scsi.ParseCaching(in, ten)
	}
	if err != nil && !errors.Is(err, errRefused) && !errors.Is(err, scsi.ErrConflict) {
		return err
	}
	if !q.id.HasPage {
		q.id.WCE = true
	}
	return nil
}

// portGroups reads the asymmetric access states, with the extended header
// where the unit takes that.
func (q *query) portGroups() error {
	if q.id.TPGS == 0 {
		return nil
	}
	groups, err := q.s.portGroups(q)
	if errors.Is(err, errRefused) {
		return nil
	}
	q.id.Groups = groups
	return err
}

// PortGroups reads REPORT TARGET PORT GROUPS alone: the access states now.
func (s *Session) PortGroups(ctx context.Context, lun scsi.LUN) (scsi.PortGroups, error) {
	g, err := s.portGroups(&query{s: s, ctx: ctx, lun: lun})
	return g, s.cfg.wrap(err)
}

func (s *Session) portGroups(q *query) (scsi.PortGroups, error) {
	extended := true
	for size := 1024; ; {
		in, err := q.ask("REPORT TARGET PORT GROUPS", scsi.PutReportTPG(q.cdb[:], uint32(size), extended), make([]byte, size))
		if errors.Is(err, errRefused) && extended {
			extended = false
			continue
		}
		if err != nil {
			return scsi.PortGroups{}, err
		}
		if want := scsi.TPGLen(in); want > size && want <= maxTPG {
			size = want
			continue
		}
		g, err := scsi.ParseReportTPG(in)
		if err != nil && extended {
			// The kernel's target does not count the extended header, and cuts the last
			// descriptor (target_core_alua.c).
			extended = false
			continue
		}
		return g, err
	}
}

// Capacity reads the capacity alone, for growth.
func (s *Session) Capacity(ctx context.Context, lun scsi.LUN) (scsi.Capacity, error) {
	q := &query{s: s, ctx: ctx, lun: lun}
	err := q.capacity()
	return q.id.Capacity, s.cfg.wrap(err)
}

// ReportLUNs lists the units of the target: asked of LUN 0, and of the well
// known unit when there is no LUN 0.
func (s *Session) ReportLUNs(ctx context.Context) ([]scsi.LUN, error) {
	var err error
	for _, lun := range []scsi.LUN{0, scsi.WellKnownReportLUNs} {
		var luns []scsi.LUN
		if luns, err = s.reportLUNs(&query{s: s, ctx: ctx, lun: lun}); err == nil {
			return luns, nil
		}
		if !errors.Is(err, errRefused) {
			break
		}
	}
	return nil, s.cfg.wrap(err)
}

func (s *Session) reportLUNs(q *query) ([]scsi.LUN, error) {
	for size := 1024; ; {
		in, err := q.ask("REPORT LUNS", scsi.PutReportLUNs(q.cdb[:], uint32(size)), make([]byte, size))
		if err != nil {
			return nil, err
		}
		luns, total, err := scsi.ParseReportLUNs(nil, in)
		if err != nil || total <= size || size >= 8+8*scsi.MaxLUNs {
			return luns, err
		}
		size = min(total, 8+8*scsi.MaxLUNs)
	}
}
