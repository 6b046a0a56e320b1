// Package bench holds the measuring commands.
//
// Seeds measures the founding ideas of the project, each against the design it
// replaced, both compiled in and run interleaved in one process. It needs no
// other program: the paths are in memory.
//
//	Seeds -> suites -> experiment (sides, claims) -> rounds -> Claim
//
// A suite is a row in suites. A side is one way to do the work; a claim
// compares one figure of two sides, or states a figure of one. Every side
// checks its own work while it is measured: a run that lost, doubled or
// misdirected anything is an error and no figure.
package bench
