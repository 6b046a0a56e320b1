// Package nvme is what both ends of NVMe say to each other, whatever carries
// it: commands and completions, Fabrics commands, Identify data, log pages,
// events, features, reservations, and what each status means for an I/O.
//
// It is pure: bytes in, values out, and the other way round. Integers are
// little-endian on the wire. Sections cited are those of the NVM Express Base
// Specification 2.1 ("Base") and the NVM Command Set Specification 1.1 ("NVM").
package nvme
