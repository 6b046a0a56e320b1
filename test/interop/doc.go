// Package interop tests our programs against ones we did not write: tgt as the
// target of our initiator, fio as the client of our NBD server.
//
// Its tests have the build tag interop, need root, and fail when a program is
// missing. `make interop` runs them.
package interop
