#!/usr/bin/env bash
# Builds the image of release/Dockerfile from dist/ without a network, and runs what pipelines run in it. The base is not
# HashiCorp's, which no registry of packages has: it is made of this machine's Terraform, git and shell. So this tests
# what the Dockerfile adds to a base, and not HashiCorp's image.
set -euo pipefail
cd "$(dirname "$0")/.."
if (( EUID != 0 )); then
  exec sudo env "PATH=$PATH" "$0"
fi
if [[ ${1-} != inside ]]; then
  exec unshare --mount --net "$0" inside
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
buildah() { command buildah --storage-driver vfs --root "$work/storage" --runroot "$work/run" "$@"; }
build() { buildah bud --quiet --isolation chroot --pull-never --build-arg TARGETPLATFORM=linux/amd64 "$@" >/dev/null; }

mkdir -p "$work/base/"{bin,tmp}
for program in git sh terraform; do
  path=$(command -v $program)
  cp -L "$path" "$work/base/bin/$program"
  libraries=$(ldd "$path" 2>/dev/null | grep -o '/[^ ]*') || continue # Terraform has none
  xargs cp -L --parents -t "$work/base" <<< "$libraries"
done
printf 'FROM scratch\nCOPY . /\nENTRYPOINT ["/bin/terraform"]\n' > "$work/Dockerfile"
build --file "$work/Dockerfile" --tag "$(sed -n 's/^FROM //p' release/Dockerfile)" "$work/base"

# As goreleaser lays it out: the programs by platform, beside the extra files.
mkdir -p "$work/context/linux/amd64"
cp LICENSE "$work/context"
tar -xzf dist/castle_*_linux_amd64.tar.gz -C "$work/context/linux/amd64" bin/castle
build --file release/Dockerfile --tag castle "$work/context"
command=$(buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.Cmd}}' castle)
[[ $command == '[] [castle --help]' ]] || { echo "the image starts $command" >&2; exit 1; }
container=$(buildah from --pull-never castle)
run() { buildah run --isolation chroot "$container" -- "$@"; }
run castle version
run castle --help | grep '^  create' >/dev/null
run terraform version
run git --version
run sh -c '[ -s /usr/local/share/doc/castle/LICENSE ]'
echo "==> the image runs castle, Terraform and git"
