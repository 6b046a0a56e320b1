package volume

import "time"

// Every limit of this package (I6).
const (
	// maxVolume bounds a volume's ID, bytes (CSI).
	maxVolume = 128
	// maxPath bounds a path, bytes.
	maxPath = 4095
	// maxVolumes bounds what one node serves, maxTargets the publications of one
	// volume.
	maxVolumes = 4096
	maxTargets = 1024
	// maxOptions bounds the mount options of a volume, maxOptionBytes each.
	maxOptions     = 64
	maxOptionBytes = 1024
	// maxSecrets bounds the secrets of a call, maxSecretBytes all of them.
	maxSecrets     = 32
	maxSecretBytes = 8 << 10
	// maxRecord bounds a record, and a file of secrets, bytes.
	maxRecord = 256 << 10

	// unstageWithin is how long Unstage may take whatever its caller grants: with
	// all paths dead it has said so before ten seconds are over.
	unstageWithin = 9 * time.Second
	// failWithin is how long a device that nobody serves may take to fail its I/O.
	failWithin = 2 * time.Second
	// cleanupWithin is how long a Stage that failed clears up.
	cleanupWithin = 5 * time.Second
	// filesystemWithin is how long making and checking a file system may go on
	// after the caller of Stage gave up: a retry finds it done.
	filesystemWithin = 10 * time.Minute
	// recoverWithin is how long the start waits for volumes that were served
	// before; those that take longer come back later.
	recoverWithin = 30 * time.Second
	// recoverAtOnce is how many volumes are brought back at a time.
	recoverAtOnce = 64
	// backFirst and backMost bound the pauses between attempts to bring a volume
	// back that fail at once.
	backFirst = time.Second
	backMost  = 30 * time.Second
	// sizePoll is how often the kernel is asked whether it knows a new size.
	sizePoll = 20 * time.Millisecond
	// giveWay is how long Unstage waits for a Stage nobody waits for to end.
	giveWay = 5 * time.Second
)
