package health

import "github.com/prometheus/client_golang/prometheus"

// Numbers are those of one volume that change all the time.
type Numbers struct {
	Volume   string
	Up, Down int // paths
	// Outstanding are requests without an answer, InDoubt writes that wait for a
	// fence (I3).
	Outstanding, InDoubt int64
}

// Collector makes metrics of the volumes that a node has when it is asked.
type Collector struct {
	read                        func() []Numbers
	paths, outstanding, inDoubt *prometheus.Desc
}

// NewCollector makes metrics of what read returns, which must ask no storage.
func NewCollector(read func() []Numbers) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("csi_mpath_volume_"+name, help, append([]string{"volume"}, labels...), nil)
	}
	return &Collector{read: read,
		paths:       desc("paths", "Paths of a volume on this node, up or down.", "state"),
		outstanding: desc("requests_outstanding", "Requests of a volume without an answer."),
		inDoubt:     desc("writes_in_doubt", "Writes on lost paths of a volume that wait for a fence."),
	}
}

// Describe says what there may be.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	out <- c.paths
	out <- c.outstanding
	out <- c.inDoubt
}

// Collect says what there is.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, n := range c.read() {
		gauge(c.paths, float64(n.Up), n.Volume, "up")
		gauge(c.paths, float64(n.Down), n.Volume, "down")
		gauge(c.outstanding, float64(n.Outstanding), n.Volume)
		gauge(c.inDoubt, float64(n.InDoubt), n.Volume)
	}
}
