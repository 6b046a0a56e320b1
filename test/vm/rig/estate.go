package rig

import (
	"errors"
	"strings"
	"testing"

	"github.com/csi-mpath/csi-mpath/pkg/device"
	"github.com/csi-mpath/csi-mpath/pkg/target/config"
	"github.com/csi-mpath/csi-mpath/pkg/target/estate"
	"github.com/csi-mpath/csi-mpath/test/vm/kmsg"
)

// Estate is our target in this process, with a configuration that a test
// changes live.
type Estate struct {
	*estate.Estate
	text string
}

// ServeEstate serves a configuration until the test ends.
func ServeEstate(t testing.TB, text string) *Estate {
	t.Helper()
	c, err := config.Parse([]byte(text))
	Must(t, err)
	e, err := estate.Open(c, estate.Options{Secrets: device.ReadSecretFile, DHChap: device.ReadDHChapFiles})
	Must(t, err)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Estate{e, text}
}

// Between is the configuration from the text from up to the text to.
func (e *Estate) Between(from, to string) string {
	i := strings.Index(e.text, from)
	if i < 0 {
		return ""
	}
	piece, _, _ := strings.Cut(e.text[i:], to)
	return piece
}

// Change replaces a piece of the configuration.
func (e *Estate) Change(old, with string) error {
	text := strings.Replace(e.text, old, with, 1)
	if old == "" || text == e.text && old != with {
		return errors.New("the configuration has no " + old)
	}
	c, err := config.Parse([]byte(text))
	if err != nil {
		return err
	}
	e.text = text
	kmsg.Say("%s becomes %s", old, with)
	return e.Apply(c)
}
