package nvmetcp

import "time"

// Every bound of the host, in one place (I6); those of discovery are in
// discoverlimits.go.
const (
	defaultConnectTimeout = 5 * time.Second
	defaultLoginTimeout   = 10 * time.Second
	defaultPathTimeout    = 5 * time.Second
	defaultCommandTimeout = 30 * time.Second
	defaultKeepAlive      = 5 * time.Second
	// minKeepAlive and maxKeepAlive bound Config.KeepAlive.
	minKeepAlive = 100 * time.Millisecond
	maxKeepAlive = 10 * time.Minute
	// abortTimeout is how long a command that was aborted may stay unanswered yet.
	abortTimeout = 10 * time.Second
	// maxAborts is the most Abort commands outstanding at once, fewer if the
	// controller says so.
	maxAborts = 4
	// assumedQuiesce is CQT of a controller that was never reached.
	assumedQuiesce = 2 * time.Second

	// defaultDepth and maxDepth bound Config.QueueDepth, commands of one queue.
	defaultDepth = 128
	maxDepth     = 4096
	// defaultQueues and maxQueues bound Config.Queues.
	defaultQueues = 1
	maxQueues     = 64
	// adminEntries is the size of the admin queue: the least that every controller
	// has. ioControls are the commands kept on an I/O queue for what is no blk.Command.
	adminEntries = 32
	ioControls   = 4
	// maxEvents is the most Asynchronous Event Requests outstanding, on the admin queue.
	maxEvents = 4
	// maxNamespaces is the most namespaces of one controller.
	maxNamespaces = 1024
	// fewRegistrants is how many registrants a report has room for at first.
	fewRegistrants = 15
	// openR2T is how many transfers one command may have open: what ICReq says.
	openR2T = 1
	// maxAuthLegs ends an authentication that goes on for ever.
	maxAuthLegs = 8

	// readyPoll is how often CSTS is read while a change of CC takes effect.
	readyPoll = 20 * time.Millisecond
	// noReadyTimeout replaces CAP.TO = 0.
	noReadyTimeout = 500 * time.Millisecond
	// maxIdentifications is how often one begins again because the log of ANA
	// groups does not know the namespace's group yet.
	maxIdentifications = 4
)
