package lvmthin

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// fields are what a report is asked for.
const fields = "lv_name,lv_size,lv_tags,pool_lv,segtype,lv_active,lv_device_open,data_percent,metadata_percent,lv_when_full,zero,lv_health_status,vg_extent_size"

// volume is one logical volume of a report.
type volume struct {
	name   string
	size   int64 // bytes
	extent int64 // bytes, of the volume group
	tags   []string
	pool   string // of a thin volume
	kind   string // its segment type
	active bool
	open   bool
	// data and metadata are parts of one that are taken; -1: not known, as of all
	// that are not active.
	data, metadata float64
	errorWhenFull  bool
	zeroing        bool
	health         string // "" is good
}

// parse reads what lvs printed: strings in JSON, whatever they mean.
func parse(b []byte) ([]volume, error) {
	var doc struct {
		Report []struct {
			LV []map[string]string `json:"lv"`
		} `json:"report"`
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, fmt.Errorf("report of lvs: %w", err)
	}
	if len(doc.Report) != 1 {
		return nil, fmt.Errorf("%d reports of lvs, want one", len(doc.Report))
	}
	rows := doc.Report[0].LV
	if len(rows) > maxVolumes {
		return nil, fmt.Errorf("report of lvs: %d volumes, at most %d", len(rows), maxVolumes)
	}
	out := make([]volume, 0, len(rows))
	for _, row := range rows {
		v, err := parseVolume(row)
		if err != nil {
			return nil, fmt.Errorf("report of lvs: volume %.80q: %w", row["lv_name"], err)
		}
		out = append(out, v)
	}
	return out, nil
}

func parseVolume(row map[string]string) (volume, error) {
	for _, f := range strings.Split(fields, ",") {
		if _, ok := row[f]; !ok {
			return volume{}, fmt.Errorf("no %s", f)
		}
	}
	v := volume{name: row["lv_name"], pool: row["pool_lv"], kind: row["segtype"], active: row["lv_active"] == "active",
		open: row["lv_device_open"] == "open", errorWhenFull: row["lv_when_full"] == "error", zeroing: row["zero"] == "zero", health: row["lv_health_status"]}
	if !validName(v.name) {
		return volume{}, errors.New("that is no name")
	}
	if row["lv_tags"] != "" {
		v.tags = strings.Split(row["lv_tags"], ",")
	}
	var errs [4]error
	v.size, errs[0] = number(row["lv_size"])
	v.extent, errs[1] = number(row["vg_extent_size"])
	v.data, errs[2] = part(row["data_percent"])
	v.metadata, errs[3] = part(row["metadata_percent"])
	if v.extent == 0 || v.extent > maxExtent {
		errs[1] = errors.Join(errs[1], fmt.Errorf("extents of %d bytes", v.extent))
	}
	return v, errors.Join(errs[:]...)
}

func number(s string) (int64, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err //nolint:gosec // of 63 bits
}

// part is a percentage as a part of one. LVM rounds what is a little more than
// nothing up, so that 0 is nothing.
func part(s string) (float64, error) {
	if s == "" {
		return -1, nil
	}
	p, err := strconv.ParseFloat(s, 64)
	if err != nil || !(p >= 0 && p <= 100) {
		return -1, fmt.Errorf("%.20q is no percentage", s)
	}
	return p / 100, nil
}
