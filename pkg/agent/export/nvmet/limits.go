package nvmet

// Bounds and fixed choices (I6).
const (
	// firstPort is our first directory of ports where the configuration names none:
	// administrators and their tools count theirs from 1.
	firstPort = 41500
	// dhGroup is the Diffie-Hellman group of authentication; the kernel's default,
	// none, leaves what is said open to guessing.
	dhGroup = "ffdhe2048"
	// suffix is the hexadecimal digits by which an initiator's subsystem is told from
	// others of the volume.
	suffix = 16
)
