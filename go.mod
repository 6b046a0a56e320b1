module github.com/csi-mpath/csi-mpath

go 1.26.0

require (
	github.com/go-logr/logr v1.4.1 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sys v0.50.0 // indirect
	k8s.io/klog/v2 v2.140.0 // indirect
)
