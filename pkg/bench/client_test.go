package bench

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/csi-mpath/csi-mpath/pkg/blk"
)

// silent answers nothing.
type silent struct{}

func (silent) Submit(*blk.Request) {}

func TestAClientThatIsNeverAnsweredEndsWithAFailedCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stop atomic.Bool // the end of the sample is not what it waits for
		c := newClient(0, 4, false, make([]byte, requestSize))
		if _, err := c.loop(silent{})(&stop); !errors.Is(err, errCheck) {
			t.Fatal(err)
		}
	})
}
