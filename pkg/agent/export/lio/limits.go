package lio

// Bounds and fixed choices (I6).
const (
	// adapter is our directory of backstores: administrators and their tools count
	// theirs from 0.
	adapter = "iblock_4150"
	// group is the one target portal group of each target, so that a session that
	// was lost at one portal is reinstated at another (I3).
	group = 1
	// depth is the commands that an initiator may have in flight in one session.
	depth = 128
)
