package configfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Edit makes a tree what it should be, step by step, and remembers whether
// anything was not. After the first error nothing more is done. For one
// goroutine.
type Edit struct {
	ctx     context.Context
	fs      FS
	changed bool
	err     error
}

// NewEdit begins. All steps end when ctx does.
func NewEdit(ctx context.Context, tree FS) *Edit { return &Edit{ctx: ctx, fs: tree} }

// Result is what came of it.
func (e *Edit) Result() (changed bool, err error) { return e.changed, e.err }

// Err is the first error.
func (e *Edit) Err() error { return e.err }

// Context is the one that all steps end with.
func (e *Edit) Context() context.Context { return e.ctx }

// Fail ends the edit with an error, if it has none yet.
func (e *Edit) Fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

// do takes a step that changes something.
func (e *Edit) do(what string, err error) {
	if err != nil {
		e.Fail(fmt.Errorf("%s: %w", what, err))
		return
	}
	e.changed = true
}

// Dir makes a directory unless it is there, and says whether it made it.
func (e *Edit) Dir(p Path) (made bool) {
	if e.err != nil {
		return false
	}
	err := e.fs.Mkdir(e.ctx, p)
	if errors.Is(err, fs.ErrExist) {
		return false
	}
	e.do("mkdir "+string(p), err)
	return err == nil
}

// Has reports whether a directory is there.
func (e *Edit) Has(p Path) bool {
	if e.err != nil {
		return false
	}
	_, err := e.fs.List(e.ctx, p)
	if err != nil && !Absent(err) {
		e.Fail(fmt.Errorf("list %s: %w", p, err))
	}
	return err == nil
}

// List is the names in a directory; one that is not there has none.
func (e *Edit) List(p Path) []string {
	if e.err != nil {
		return nil
	}
	names, err := e.fs.List(e.ctx, p)
	if err != nil && !Absent(err) {
		e.Fail(fmt.Errorf("list %s: %w", p, err))
	}
	return names
}

// Get reads an attribute; "" if it is not there. What the kernel writes before
// some values ("T10 Vendor Identification: ") is cut off.
func (e *Edit) Get(p Path) string {
	text := e.Raw(p)
	if _, value, found := strings.Cut(text, ": "); found {
		text = value
	}
	return strings.TrimSpace(text)
}

// Raw reads an attribute as it is; "" if it is not there.
func (e *Edit) Raw(p Path) string {
	if e.err != nil {
		return ""
	}
	text, err := e.fs.Read(e.ctx, p)
	if err != nil && !Absent(err) {
		e.Fail(fmt.Errorf("read %s: %w", p, err))
	}
	return text
}

// Attr writes an attribute unless it has the value.
func (e *Edit) Attr(p Path, value string) {
	if e.Get(p) != value {
		e.Set(p, value)
	}
}

// Attrs writes several of a directory: names and values in turn.
func (e *Edit) Attrs(dir Path, kv ...string) {
	for i := 0; i+1 < len(kv); i += 2 {
		e.Attr(dir.Add(kv[i]), kv[i+1])
	}
}

// Set writes an attribute whatever it has.
func (e *Edit) Set(p Path, value string) {
	if e.err == nil {
		e.do(fmt.Sprintf("write %.80q to %s", value, p), e.fs.Write(e.ctx, p, value))
	}
}

// Try is Set for what the kernel may refuse with one of some errors: then the
// attribute stays as it is.
func (e *Edit) Try(p Path, value string, refusals ...error) {
	if e.err != nil {
		return
	}
	err := e.fs.Write(e.ctx, p, value)
	if !slices.ContainsFunc(refusals, func(r error) bool { return errors.Is(err, r) }) {
		e.do(fmt.Sprintf("write %.80q to %s", value, p), err)
	}
}

// Secret is Attr for what no error may tell (I10). none is how the kernel is told
// that there is no secret.
func (e *Edit) Secret(p Path, value, none string) {
	have := e.Raw(p)
	if have == none {
		have = ""
	}
	if e.err != nil || have == value {
		return
	}
	if value == "" {
		value = none
	}
	e.do("write a secret to "+string(p), e.fs.Write(e.ctx, p, value))
}

// Link makes a link to a directory unless it is there.
func (e *Edit) Link(to, at Path) {
	if e.err != nil {
		return
	}
	if err := e.fs.Symlink(e.ctx, to, at); !errors.Is(err, fs.ErrExist) {
		e.do(fmt.Sprintf("link %s to %s", at, to), err)
	}
}

// Unlink removes a link; there may be none.
func (e *Edit) Unlink(p Path) {
	if e.err == nil {
		e.gone("unlink "+string(p), e.fs.Unlink(e.ctx, p))
	}
}

// Remove removes a directory; there may be none. It returns when the kernel has
// let go of what it stood for.
func (e *Edit) Remove(p Path) {
	if e.err == nil {
		e.gone("rmdir "+string(p), e.fs.Rmdir(e.ctx, p))
	}
}

// TryRemove is Remove for what the kernel may refuse with an error: then the
// directory stays.
func (e *Edit) TryRemove(p Path, refusal error) {
	if e.err != nil {
		return
	}
	if err := e.fs.Rmdir(e.ctx, p); !errors.Is(err, refusal) {
		e.gone("rmdir "+string(p), err)
	}
}

func (e *Edit) gone(what string, err error) {
	if !Absent(err) {
		e.do(what, err)
	}
}

// Bit is how most attributes say yes and no.
func Bit(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
