// Package bench holds the measuring commands.
//
// Seeds measures the founding ideas of the project, each against the design it
// replaced, both compiled in and run interleaved in one process. It needs no
// other program: the paths are in memory, and where sockets are measured (S5) the
// target is this program again (Child).
//
//	Seeds       -> suites -> experiment (sides, claims) -> rounds -> Claim
//	BenchVolume -> parameters x workloads -> rounds -> VolumeFigure -> Advice
//
// BenchVolume measures a user's own volume and says which StorageClass values are
// better than the defaults beyond the noise.
//
// A suite is a row in suites. A side is one way to do the work; a claim
// compares one figure of two sides, or states a figure of one. Every side
// checks its own work while it is measured: a run that lost, doubled or
// misdirected anything is an error and no figure.
package bench
