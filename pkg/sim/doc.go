// Package sim plays the whole engine in virtual time: the real pkg/device with
// its lanes and its iSCSI sessions or NVMe/TCP controllers, over links in memory,
// against the real machines of pkg/target, while a script of faults runs; and
// judges what the clients were told. Tests only.
//
// The order of reading: run.go (one run from the first login to the last
// check), world.go (events and the clock), link.go and wire.go (connections),
// array.go (the target's side), front.go, iscsi.go and nvme.go (its protocols),
// spy.go (who reads along), store.go (its disk), client.go (those who ask),
// oracle.go and history.go (the judge), script.go, verbs.go, protocol.go, volume.go,
// orders.go, generate.go and stories.go (faults), pool.go and shrink.go (many seeds in
// processes of their own).
//
// # What of testing/synctest it rests on
//
// All goroutines of a run are in one bubble. Its clock stands still while any
// of them can run, and jumps to the next timer when all are durably blocked:
// on a channel of the bubble, a select of such, sync.Cond, a WaitGroup of the
// bubble, or time.Sleep. Waiting for a mutex, for a system call or for a real
// socket is not durable: so nobody here sleeps with a mutex held (sync.Cond
// gives it up), there is no socket (Config.Dial, Config.NoControl), and system
// calls on files just take no virtual time. A bubble whose main goroutine has
// returned while others are blocked for good panics: no goroutine leaks unseen.
//
// Polling is set and changed under load as any other tunable, but a reader does
// not spin: a link is no socket (poll.Stream), and a goroutine that looks again
// and again at a clock which waits for it to rest would never end. What spinning
// does to answers is pkg/poll's tests' and those of the real rings.
//
// # How sure a repetition is
//
// A script and its seed fix every fault, delay, cut of bytes and request. The
// order in which the Go scheduler runs goroutines that are ready at one instant
// is not fixed: a worker has one processor (GOMAXPROCS=1) and no collector
// during a run, which leaves preemption after 10 ms of real time and the random
// choice of the runtime among equals. Scripts with "procs" above 1 are there
// for real races, and repeat less surely.
package sim
