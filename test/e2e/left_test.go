//go:build e2e

package e2e

import (
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type kindOf = schema.GroupVersionResource

// gone waits until an object is no more.
func (s *story) gone(kind kindOf, name string) {
	s.t.Helper()
	s.Until("the end of "+kind.Resource+" "+name, longer, func() error {
		_, err := s.Object(kind, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %w", err)
	})
}

// onlyDefinitions looks through every kind of object for one of the release's.
func (s *story) onlyDefinitions() {
	s.t.Helper()
	kinds := strings.Fields(s.Kubectl("api-resources", "--verbs=list", "-o", "name"))
	s.Until("the end of all that helm installed, but CRDs", soon, func() error {
		out, err := s.Try("get", strings.Join(kinds, ","), "-A", "-l", "app.kubernetes.io/instance="+release, "-o", "name", "--ignore-not-found")
		if err != nil {
			return err
		}
		for _, name := range strings.Fields(out) {
			if name != "customresourcedefinition.apiextensions.k8s.io/multipathvolumes.csi-mpath.io" {
				return fmt.Errorf("left: %s", out)
			}
		}
		return nil
	})
	s.Show("left.txt", "get", strings.Join(kinds, ","), "-A", "-l", "app.kubernetes.io/instance="+release, "-o", "name", "--ignore-not-found")
}
