package bench

import "time"

// Every limit of this package (I6).
const (
	// MinRounds is the least number of rounds for a figure to be published.
	MinRounds = 7
	// MaxRounds bounds what the command line may ask for.
	MaxRounds = 1000
	// maxTries is how often an experiment is measured while its control is void.
	maxTries = 3
	// controlSpan is how far the control's median may leave 1.
	controlSpan = 0.05

	// shortSample and longSample are the lengths of one run of a side.
	shortSample = 250 * time.Millisecond
	longSample  = time.Second
	// quickSample is what a run for correctness alone takes.
	quickSample = 5 * time.Millisecond
	// settleTime bounds the wait for the answers after the end of a sample.
	settleTime = 30 * time.Second
)
