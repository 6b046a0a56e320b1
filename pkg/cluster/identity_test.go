package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAClusterIsNamedByItsNamespaceWhenItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(&core.Namespace{ObjectMeta: meta.ObjectMeta{Name: "kube-system", UID: "6f2e"}})
		s.away.Store(true)
		time.AfterFunc(time.Minute, func() { s.away.Store(false) })
		began := time.Now()
		if uid, err := UID(t.Context(), s); err != nil || uid != "6f2e" || time.Since(began) > 2*time.Minute {
			t.Errorf("%q, %v, after %v", uid, err, time.Since(began))
		}
		s.away.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if uid, err := UID(ctx, s); err == nil {
			t.Errorf("%q of nobody", uid)
		}
	})
}
