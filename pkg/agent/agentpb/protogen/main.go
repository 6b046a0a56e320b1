// Command protogen writes the Go code of the .proto files of its working
// directory, without protoc: a compiler in Go reads them, and the generators are
// those that go.mod pins. See go generate in package agentpb.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// registered is under which folder the files are known in a program: names in the
// registry are global.
const registered = "csimpath/agent/v1/"

// generators are tools of go.mod.
var generators = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	names, err := filepath.Glob("*.proto")
	if err != nil || len(names) == 0 {
		return fmt.Errorf("no .proto file here: %w", err)
	}
	for i, n := range names {
		names[i] = registered + n
	}
	req, err := request(ctx, names)
	if err != nil {
		return err
	}
	for _, g := range generators {
		if err := generate(ctx, g, req); err != nil {
			return fmt.Errorf("%s: %w", g, err)
		}
	}
	return nil
}

// request is what protoc would hand to a generator.
func request(ctx context.Context, names []string) ([]byte, error) {
	c := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
			Accessor: func(name string) (io.ReadCloser, error) { return os.Open(filepath.Base(name)) },
		}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := c.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	var all []*descriptorpb.FileDescriptorProto
	for _, f := range files {
		all = append(all, protodesc.ToFileDescriptorProto(f))
	}
	return proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: names, Parameter: proto.String("paths=source_relative"), ProtoFile: all})
}

// generate runs one generator and writes what it made.
func generate(ctx context.Context, tool string, req []byte) error {
	cmd := exec.CommandContext(ctx, "go", "tool", tool) //nolint:gosec // one of generators
	cmd.Stdin, cmd.Stderr = bytes.NewReader(req), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var resp pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return err
	}
	if resp.Error != nil {
		return fmt.Errorf("%s", resp.GetError())
	}
	for _, f := range resp.File {
		if err := os.WriteFile(filepath.Base(f.GetName()), []byte(f.GetContent()), 0o644); err != nil { //nolint:gosec // source
			return err
		}
	}
	return nil
}
