package sim

import "fmt"

// add sums up.
func (s *Stats) add(o Stats) {
	for _, p := range [][2]*uint64{
		{&s.Requests, &o.Requests}, {&s.Reads, &o.Reads}, {&s.Writes, &o.Writes}, {&s.Flushes, &o.Flushes},
		{&s.Errors, &o.Errors}, {&s.Replays, &o.Replays}, {&s.Steps, &o.Steps}, {&s.Kills, &o.Kills},
		{&s.PowerLosses, &o.PowerLosses}, {&s.LostBlocks, &o.LostBlocks}, {&s.Losses, &o.Losses},
		{&s.Fences, &o.Fences}, {&s.Mismatches, &o.Mismatches}, {&s.Marginal, &o.Marginal},
		{&s.Failbacks, &o.Failbacks}, {&s.Orders, &o.Orders}, {&s.Merged, &o.Merged}, {&s.Late, &o.Late},
		{&s.Reinstated, &o.Reinstated}, {&s.Logins, &o.Logins}, {&s.Aborted, &o.Aborted},
	} {
		*p[0] += *p[1]
	}
}

// line is the sums in a few words.
func (s *Stats) line() string {
	return fmt.Sprintf("%d requests, %d faults, %d paths lost, %d fences, %d late writes, %d tasks aborted, %d kills, %d replays, %d power losses (%d blocks), %d mismatches, %d slow paths, %d orders, %d failbacks, %d merged, %d errors",
		s.Requests, s.Steps, s.Losses, s.Fences, s.Late, s.Aborted, s.Kills, s.Replays, s.PowerLosses, s.LostBlocks, s.Mismatches,
		s.Marginal, s.Orders, s.Failbacks, s.Merged, s.Errors)
}
