package charts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"path"
)

// pack makes a chart's archive: the chart's own files under the requested version, the shared
// templates, and the values and definitions that the lab adds.
func pack(chart, version string, o Options, tree fs.FS) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	add := func(name string, content []byte) error {
		header := &tar.Header{Name: path.Join(chart, name), Mode: 0o644, Size: int64(len(content)),
			ModTime: built()}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err := archive.Write(content)
		return err
	}
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		switch name {
		case "Chart.yaml":
			content = versionLine.ReplaceAll(content, []byte("version: "+version))
		case "values.yaml":
			content = append(content, o.values()...)
		}
		return add(name, content)
	})
	if err != nil {
		return nil, err
	}
	shared, err := fs.ReadFile(sources, "shared/_lab.tpl")
	if err != nil {
		return nil, err
	}
	if real := o.Definitions[chart]; len(real) > 0 {
		err = add("files/upstream.yaml", real)
	}
	err = errors.Join(err, add("templates/_lab.tpl", shared), archive.Close(), zip.Close())
	return out.Bytes(), err
}
