package nvmetcp

import (
	"fmt"

	"github.com/csi-mpath/csi-mpath/pkg/nvme"
)

// readDiscoveryLog reads the whole log of one discovery controller (NVMe Base
// 2.1 section 5.1.12.3.1). read fills b from the given offset: the length of b
// is a multiple of 4, and at most discoveryChunk. A log that changes while it is
// read is read again: what was put together from two states may name the
// address of one subsystem for another (B-21).
func readDiscoveryLog(read func(offset uint64, b []byte) error) ([]nvme.Record, error) {
	for range maxLogReads {
		before, err := readDiscoveryHeader(read)
		if err != nil {
			return nil, err
		}
		records, torn := readRecords(read, int(before.Records)) //nolint:gosec // at most MaxRecords
		after, err := readDiscoveryHeader(read)
		switch {
		case err != nil:
			return nil, err
		case before != after: // also the reason of an offset past its end
		case torn != nil:
			return nil, torn
		default:
			return records, nil
		}
	}
	return nil, fmt.Errorf("%w: its discovery log changed in each of %d attempts to read it", ErrUnavailable, maxLogReads)
}

func readDiscoveryHeader(read func(uint64, []byte) error) (nvme.DiscoveryHeader, error) {
	b := make([]byte, nvme.DiscoveryHeaderLen)
	if err := read(0, b); err != nil {
		return nvme.DiscoveryHeader{}, err
	}
	h, err := nvme.ParseDiscoveryHeader(b)
	if err != nil {
		return h, fmt.Errorf("%w: %w", ErrViolation, err)
	}
	return h, nil
}

// readRecords reads n records by rising offset.
func readRecords(read func(uint64, []byte) error, n int) ([]nvme.Record, error) {
	var out []nvme.Record
	b := make([]byte, discoveryChunk)
	for left := n * nvme.RecordLen; left > 0; left -= len(b) {
		b = b[:min(left, len(b))]
		if err := read(uint64(nvme.DiscoveryHeaderLen+n*nvme.RecordLen-left), b); err != nil { //nolint:gosec // positive
			return nil, err
		}
		out = nvme.ParseRecords(out, b)
	}
	return out, nil
}
