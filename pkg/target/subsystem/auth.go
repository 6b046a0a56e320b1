package subsystem

import "github.com/csi-mpath/csi-mpath/pkg/nvme"

// authInCapsule is the most of an authentication message in a capsule, bytes.
const authInCapsule = 0

// authState is what a queue still has to prove.
type authState struct{}

func (m *Machine) authFor(*controller) *authState { return nil }

func (t *task) authWants() (uint32, nvme.Status) { return 0, nvme.InvalidOpcode.Final() }
func (t *task) authSend()                        { t.answer(nvme.InvalidOpcode.Final()) }
func (t *task) authReceive()                     { t.answer(nvme.InvalidOpcode.Final()) }
