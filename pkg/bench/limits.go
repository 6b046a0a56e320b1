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

	// shortSample and longSample are the lengths of one run of a side;
	// turnedSample is that of manyTurns runs together.
	shortSample  = 250 * time.Millisecond
	turnedSample = 480 * time.Millisecond
	manyTurns    = 8
	longSample   = time.Second
	// reportedSample is that of experiments without a goal.
	reportedSample = 240 * time.Millisecond
	// loadedSample is that of loadedTurns on a machine that is kept busy.
	loadedSample = 1600 * time.Millisecond
	loadedTurns  = 4
	// quickSample is what a run for correctness alone takes.
	quickSample = 5 * time.Millisecond
	// overhead is what opening, closing and collecting garbage add to a run.
	overhead = 1.1
	// plotTime is about what a suite's plot takes.
	plotTime = 15 * time.Second
	// learnTime bounds how long mergeDeadline auto may take to settle, and
	// learnUsual is what it takes.
	learnTime  = 10 * time.Second
	learnUsual = 4 * time.Second
	// VolumeSample is the length of one run on a user's volume, and
	// maxVolumeSample bounds what the command line may ask for.
	VolumeSample    = 250 * time.Millisecond
	maxVolumeSample = time.Minute
	// leastNoise is what figures of a volume differ by anyway.
	leastNoise = 0.05
	// settleTime bounds the wait for the answers after the end of a sample.
	settleTime = 30 * time.Second
)
