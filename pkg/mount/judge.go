package mount

import "bytes"

// verdict is what the beginning of a device means, before anybody else is asked.
type verdict uint8

const (
	// somethingElse: data that is neither of the below; blkid may know a name.
	somethingElse verdict = iota
	// allZero: nothing but zeroes.
	allZero
	// cutShort: a format of ours was begun, and has not come to its end.
	cutShort
	// abandoned: somebody's mkfs.xfs was cut short.
	abandoned
	// fileSystem: ext4 or XFS, complete.
	fileSystem
	// unconfirmed: a complete XFS beside an intent: a format of ours whose last
	// step is missing, or a file that looks like an intent.
	unconfirmed
)

// judge reads the first 2 MiB of a Device, whole.
//
// An intent counts in the boot block, where no user of a file system can put it,
// unless the file system there was mounted since. In its other place it counts
// only where no complete file system is.
func judge(head []byte, volume string) (verdict, *superblock) {
	s := readSuperblock(head)
	boot, far := intended(head[bootPlace:], volume), intended(head[farPlace:], volume)
	switch {
	case boot && (s == nil || !s.mounted):
		return cutShort, s
	case s != nil && s.unfinished && far:
		return cutShort, s
	case s != nil && s.unfinished:
		return abandoned, s
	case s != nil && s.fsType == XFS && far:
		return unconfirmed, s
	case s != nil:
		return fileSystem, s
	case far:
		return cutShort, nil
	case zero(head):
		return allZero, nil
	}
	return somethingElse, nil
}

// zero: the first byte is 0, and every other one is as the one before it.
func zero(b []byte) bool {
	return len(b) == 0 || b[0] == 0 && bytes.Equal(b[1:], b[:len(b)-1])
}
