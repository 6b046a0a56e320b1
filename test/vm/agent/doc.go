// Package agent holds tests of the storage-host agent's exports over the kernel's
// own targets, LIO and nvmet: that an evicted node's writes stop when its access
// is said to be gone, that what is served survives the agent, and comes back
// after a reboot as it was. Writes are held in the backing store by dm-delay.
package agent
