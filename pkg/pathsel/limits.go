package pathsel

// MaxPaths is the most paths one group may hold.
const MaxPaths = 32

// The moving average of a service time: an answer counts one averageOver-th;
// of a batch the first averageDepth count, which is all but 2% of the weight.
const (
	averageOver  = 16
	averageDepth = 64
)
