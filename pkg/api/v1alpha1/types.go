// Package v1alpha1 has the types of the API group csi-mpath.io. What the API server
// accepts of them is in deploy/crd; a test compares the two.
package v1alpha1

import meta "k8s.io/apimachinery/pkg/apis/meta/v1"

// MultipathVolume is one volume on one node: how its paths are, and what it is to
// be tuned with. Publish makes it, Unpublish deletes it.
type MultipathVolume struct {
	meta.TypeMeta   `json:",inline"`
	meta.ObjectMeta `json:"metadata,omitempty"`

	Spec   MultipathVolumeSpec   `json:"spec"`
	Status MultipathVolumeStatus `json:"status,omitzero"`
}

// MultipathVolumeSpec says which volume it is. The controller writes it.
type MultipathVolumeSpec struct {
	Volume string `json:"volume"` // the CSI volume ID
	Node   string `json:"node"`
	// Generation of the tunables: of two the higher one counts.
	Generation int64             `json:"generation,omitempty"`
	Tunables   map[string]string `json:"tunables,omitempty"` // an absent key keeps its value
	// Portals are the ways to it, as the controller knows them: host:port. None: the
	// node has those of publish_context.
	Portals []string `json:"portals,omitempty"`
}

// State is a volume in one word.
type State string

// The states.
const (
	Healthy     State = "Healthy"     // all paths work
	Degraded    State = "Degraded"    // some do
	Unreachable State = "Unreachable" // none does
)

// The types of conditions; True is as it should be.
const (
	Accessible = "Accessible" // some path works
	Redundant  = "Redundant"  // all paths work
)

// MultipathVolumeStatus is how the node sees it. The node writes it, when something
// changed; numbers that change all the time are in its metrics.
type MultipathVolumeStatus struct {
	State State `json:"state,omitempty"`
	// Working says how many paths work, for people: 1/2.
	Working    string           `json:"working,omitempty"`
	Paths      []PathStatus     `json:"paths,omitempty"` // by portal
	Conditions []meta.Condition `json:"conditions,omitempty"`
	// Generation of the tunables that the volume has.
	Generation int64 `json:"generation,omitempty"`
	// Notes are what happened to it last, one of each reason.
	Notes []Note `json:"notes,omitempty"`
}

// Note is something that happened and is over. The controller makes an Event of it.
type Note struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	Time    meta.Time `json:"time"`
}

// PathStatus is one path.
type PathStatus struct {
	Portal string    `json:"portal"` // host:port
	Up     bool      `json:"up"`
	State  string    `json:"state,omitempty"`
	Since  meta.Time `json:"since,omitzero"` // of Up and State
	// LastError is why it is not up, as it was when the status was written.
	LastError string `json:"lastError,omitempty"`
}

// MultipathVolumeList is what a list of them is.
type MultipathVolumeList struct {
	meta.TypeMeta `json:",inline"`
	meta.ListMeta `json:"metadata,omitempty"`
	Items         []MultipathVolume `json:"items"`
}
