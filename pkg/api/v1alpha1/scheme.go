package v1alpha1

import (
	"maps"
	"slices"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group's name and version; Resource names MultipathVolumes.
var (
	GroupVersion = schema.GroupVersion{Group: "csi-mpath.io", Version: "v1alpha1"}
	Resource     = GroupVersion.WithResource("multipathvolumes")
)

// AddToScheme makes a scheme know the types.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &MultipathVolume{}, &MultipathVolumeList{})
	meta.AddToGroupVersion(s, GroupVersion)
	return nil
}

// DeepCopy shares nothing with v.
func (v *MultipathVolume) DeepCopy() *MultipathVolume {
	out := *v
	v.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Spec.Tunables = maps.Clone(v.Spec.Tunables)
	out.Spec.Portals = slices.Clone(v.Spec.Portals)
	out.Status = *v.Status.DeepCopy()
	return &out
}

// DeepCopyObject is DeepCopy for those who do not know what they have.
func (v *MultipathVolume) DeepCopyObject() runtime.Object { return v.DeepCopy() }

// DeepCopy shares nothing with s.
func (s *MultipathVolumeStatus) DeepCopy() *MultipathVolumeStatus {
	out := *s
	out.Paths = slices.Clone(s.Paths)
	out.Conditions = slices.Clone(s.Conditions)
	out.Notes = slices.Clone(s.Notes)
	return &out
}

// DeepCopyObject shares nothing with l.
func (l *MultipathVolumeList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = slices.Clone(l.Items)
	for i := range out.Items {
		out.Items[i] = *l.Items[i].DeepCopy()
	}
	return &out
}
