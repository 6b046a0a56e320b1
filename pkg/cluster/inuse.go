package cluster

import (
	"context"
	"fmt"
	"slices"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// InUse are the volumes of a driver that nodes have attached, or that are being
// detached, as "PersistentVolume on node", sorted.
func InUse(ctx context.Context, client kubernetes.Interface, driver string) (out []string, err error) {
	for page := (meta.ListOptions{Limit: pageSize}); ; {
		all, err := client.StorageV1().VolumeAttachments().List(ctx, page)
		if err != nil {
			return nil, fmt.Errorf("list of VolumeAttachments: %w", err)
		}
		for _, a := range all.Items {
			if a.Spec.Attacher != driver {
				continue
			}
			name := a.Name
			if pv := a.Spec.Source.PersistentVolumeName; pv != nil {
				name = *pv
			}
			out = append(out, name+" on "+a.Spec.NodeName)
		}
		if page.Continue = all.Continue; page.Continue == "" {
			slices.Sort(out)
			return out, nil
		}
	}
}
