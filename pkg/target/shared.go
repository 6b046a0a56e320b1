package target

import "github.com/csi-mpath/csi-mpath/pkg/target/serve"

// What both protocols of the embedded target share; see package serve.
type (
	Conn         = serve.Conn
	Batch        = serve.Batch
	PortalConfig = serve.PortalConfig
	Portal       = serve.Portal
	Door         = serve.Door

	Kind    = serve.Kind
	Match   = serve.Match
	Held    = serve.Held
	Hold    = serve.Hold
	Twist   = serve.Twist
	Flip    = serve.Flip
	Letters = serve.Letters
	Kept    = serve.Kept
)

// The kinds of commands. Writes are COMPARE AND WRITE and ORWRITE too, Trims
// UNMAP and WRITE SAME with UNMAP, Zeroes WRITE SAME without it.
const (
	Any     = serve.Any
	Reads   = serve.Reads
	Writes  = serve.Writes
	Flushes = serve.Flushes
	Trims   = serve.Trims
	Zeroes  = serve.Zeroes
	Others  = serve.Others
)
