package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// The cluster that the generated ones are like, and its values that no two clusters may share.
const (
	likeCluster   = "mini"
	likeNetwork   = "192.168.1."
	likeFirstID   = 441
	likeIDs       = 4 // 441 to 444
	manyClusters  = 100
	shownCluster  = "blue"
	clusterFolder = "proxmox"
)

// commands measures what castle does without Terraform.
func (b *bench) commands(ctx context.Context) error {
	dir := filepath.Join(b.dir, rootsCommands)
	many, one := filepath.Join(dir, "many"), filepath.Join(dir, "one")
	files, err := readCluster(likeCluster)
	if err != nil {
		return err
	}
	if err := clusters(files, manyClusters).write(many); err != nil {
		return err
	}
	if files, err = readCluster(shownCluster); err != nil {
		return err
	}
	if err := files.write(one); err != nil {
		return err
	}
	env := []string{"HOME=" + filepath.Join(dir, "home"), "PATH=/usr/bin:/bin", "CHECKPOINT_DISABLE=1"}
	for range max(b.options.rounds, 3) {
		for _, c := range []struct {
			phase string
			args  []string
			dir   string
		}{
			{phaseCheckAll, []string{"check"}, many},
			{phaseCheckBlue, []string{"check", shownCluster}, one},
			{phaseVersion, []string{"version"}, one},
		} {
			m, _, err := run(ctx, c.dir, env, append([]string{b.programs.castle}, c.args...)...)
			if err != nil {
				return err
			}
			k := key{rootsCommands, c.phase, castleTool}
			b.samples[k] = append(b.samples[k], m)
		}
	}
	return nil
}

// readCluster reads a cluster of the repository in which the bench runs.
func readCluster(name string) (tree, error) {
	t := tree{}
	for _, file := range []string{"cluster.hcl", values} {
		content, err := os.ReadFile(filepath.Join("clusters", name, clusterFolder, file))
		if err != nil {
			return nil, err
		}
		t[path.Join("clusters", name, clusterFolder, file)] = string(content)
	}
	return t, nil
}

// clusters makes n clusters like likeCluster, with names, addresses and VM ids of their own.
func clusters(like tree, n int) tree {
	all := tree{}
	for i := range n {
		replace := []string{likeCluster, fmt.Sprintf("c%03d", i), likeNetwork, fmt.Sprintf("10.77.%d.", i)}
		for id := range likeIDs {
			replace = append(replace, fmt.Sprint(likeFirstID+id), fmt.Sprint(1000+i*likeIDs+id))
		}
		other := strings.NewReplacer(replace...)
		for name, content := range like {
			all[other.Replace(name)] = other.Replace(content)
		}
	}
	return all
}
