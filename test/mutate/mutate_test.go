package main

import "testing"

func TestEveryBugStillFitsTheSource(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	for _, b := range bugs {
		for _, e := range b.edits {
			if err := copyFile(root, tmp, e.file); err != nil {
				t.Fatal(err)
			}
		}
		for _, e := range b.edits {
			if err := e.apply(tmp); err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
		}
	}
}

func TestAnEditThatDoesNotMatchIsAnError(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	if err := copyFile(root, tmp, "go.mod"); err != nil {
		t.Fatal(err)
	}
	if (edit{"go.mod", "not there at all", ""}).apply(tmp) == nil {
		t.Fatal("nothing was replaced, and nobody says so")
	}
}
