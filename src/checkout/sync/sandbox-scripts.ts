/**
 * What sync runs in the sandbox: plain sh and git, one run per direction. Data comes on stdin and leaves on stdout: a few lines of text, an empty
 * line, then a pack. Nothing that these scripts say is believed without a check on this side.
 *
 * Inside, a repository of sync's own (`$G`) stands beside the checkout (`$W`), out of it: it has an index for the whole working tree and the
 * packs that were sent, from which the checkout's own `.git` borrows. Files are written there as bytes, without conversion or filters.
 */
import { rawAttributes } from './checkout.ts';

/** Arguments: the directory of the checkout, that of sync, the kind. */
const prelude = `
set -u
W=$1 D=$2 KIND=$3 G=$2/sync.git HEALED=0 FRESH=0
shift 3
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES
export LC_ALL=C GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_NO_REPLACE_OBJECTS=1
export GIT_AUTHOR_NAME=atoll GIT_AUTHOR_EMAIL=sync@atoll.invalid GIT_AUTHOR_DATE='1000000000 +0000'
export GIT_COMMITTER_NAME=atoll GIT_COMMITTER_EMAIL=sync@atoll.invalid GIT_COMMITTER_DATE='1000000000 +0000'
fail() { printf 'error %s\\n\\n' "$1"; exit 0; }
sg() { GIT_DIR=$G GIT_WORK_TREE=$W git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 "$@"; }
wg() { GIT_DIR=$W/.git GIT_WORK_TREE=$W git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 -c core.logAllRefUpdates=false "$@"; }
command -v git >/dev/null 2>&1 || fail no-git
borrow() { mkdir -p "$1/info" && { grep -qxF "$2" "$1/info/alternates" 2>/dev/null || printf '%s\\n' "$2" >> "$1/info/alternates"; }; }
head_of() { if [ "$KIND" = git ]; then wg rev-parse -q --verify HEAD 2>/dev/null || echo none; else echo none; fi; }
branch_of() { if [ "$KIND" = git ]; then wg symbolic-ref -q HEAD || echo detached; else echo detached; fi; }
saved() { cat "$D/$1" 2>/dev/null || echo none; }
save() { printf '%s\\n' "$2" > "$D/$1.new" && mv "$D/$1.new" "$D/$1"; }
take_changed() { rm -f "$G/index.lock"; sg -c "core.bigFileThreshold=$MANY" update-index --add --remove --replace -z --stdin < "$D/changed" 2>"$D/said"; }
snapshot() {
  rm -f "$G/index.lock"
  sg ls-files -z -o -m -d --exclude-standard > "$D/changed" || fail snapshot
  MANY=512m
  if [ -s "$D/changed" ] && [ "$(wc -c < "$D/changed")" -gt 20000 ]; then MANY=1; fi
  if [ -s "$D/changed" ] && ! take_changed; then
    # Where a file became a directory, what was there has to go before what is there comes.
    { sg ls-files -z -m -d && sg ls-files -z -o --exclude-standard; } > "$D/changed" || fail snapshot
    take_changed || fail "snapshot $(head -n 1 "$D/said")"
  fi
  S=$(sg write-tree) || fail snapshot
}
roll_forward() {
  [ -f "$D/applying" ] || return 0
  snapshot
  keep interrupted
  sg read-tree --reset -u "$(cat "$D/applying")" || fail apply
  rm -f "$D/applying"
}
keep() { K=$(sg commit-tree -m "atoll: $1" "$S") && sg update-ref "refs/atoll/kept/$(date +%s)-$$" "$K"; }
`;

const ensure = `
ensure() {
  mkdir -p "$W" "$D" || fail no-directory
  if [ ! -f "$D/ready" ]; then
    FRESH=1
    rm -rf "$G"
    git init -q --bare --template= "$G" || fail init
    sg config core.bare false
    sg config index.version 4
    mkdir -p "$G/info"
    printf '%s' '${rawAttributes}' > "$G/info/attributes"
    : > "$D/ready"
  fi
  if [ "$KIND" = git ]; then
    if ! wg rev-parse -q --git-dir >/dev/null 2>&1; then
      [ "$FRESH" = 1 ] || HEALED=1
      if [ -e "$W/.git" ]; then mv "$W/.git" "$D/broken-git-$(date +%s)" || fail broken-git; fi
      GIT_CONFIG_GLOBAL=/dev/null git init -q --template= "$W" || fail init
    elif [ "$FRESH" = 1 ] && wg rev-parse -q --verify HEAD >/dev/null 2>&1; then wg update-ref refs/atoll/found HEAD; fi
    borrow "$W/.git/objects" "$G/objects"
    borrow "$G/objects" "$W/.git/objects"
  fi
  printf '/.git\\n%s' "$1" > "$G/info/exclude"
}
`;

/** Says what the sandbox has. */
export const probeScript = `${prelude}
[ -f "$D/ready" ] || fail fresh
if [ "$KIND" = git ] && ! wg rev-parse -q --git-dir >/dev/null 2>&1; then fail lost-git; fi
snapshot
printf 'base %s\\npushed %s\\ntree %s\\nsnapshot %s\\nhead %s\\n' "$(saved base)" "$(saved pushed)" "$(saved tree)" "$S" "$(head_of)"
sg for-each-ref --count=64 --sort=-committerdate --format='have %(objectname)' refs/atoll
if [ "$KIND" = git ]; then wg for-each-ref --count=64 --sort=-committerdate --format='have %(objectname)' refs/heads refs/atoll refs/remotes; fi
echo
`;

/**
 * Arguments: patterns, the snapshot to take over, its tree, head, branch, index tree, what the caller believes the sandbox has (its last pushed
 * snapshot, its tree and its head as last seen), whether to replace what nobody has seen, shallow boundaries, the file with the pack or "-".
 */
export const pushScript = `${prelude}${ensure}
EXCL=$1 C=$2 T=$3 H=$4 B=$5 I=$6 PUSHED=$7 SEENTREE=$8 SEENHEAD=$9
shift 9
FORCE=$1 SHALLOW=$2 PACK=$3
if [ "$PUSHED" != none ] && [ "$(saved pushed)" != "$PUSHED" ]; then fail stale; fi
if [ "$PUSHED" = none ] && [ -f "$D/pushed" ] && [ "$FORCE" != force ]; then fail stale; fi
# Nothing new here and nothing new there: a look is enough.
if [ "$PUSHED" = "$C" ] && [ "$SEENTREE" = "$(saved tree)" ] && [ ! -f "$D/applying" ] && { [ "$KIND" != git ] || [ -f "$W/.git/HEAD" ]; }; then
  printf '/.git\\n%s' "$EXCL" > "$G/info/exclude"
  snapshot
  if [ "$S" = "$SEENTREE" ] && [ "$(head_of)" = "$SEENHEAD" ]; then
    printf 'base %s\\ntree %s\\nhead %s\\napplied 0\\nhealed 0\\n\\n' "$(saved base)" "$S" "$SEENHEAD"
    exit 0
  fi
fi
ensure "$EXCL"
if [ "$SHALLOW" != none ]; then printf '%s\\n' $SHALLOW > "$G/shallow"; [ "$KIND" = git ] && cp "$G/shallow" "$W/.git/shallow"; else rm -f "$G/shallow" "$W/.git/shallow"; fi
if [ "$PACK" = - ]; then PACK=$D/pack.in; cat > "$PACK"; fi
if [ -s "$PACK" ]; then sg index-pack --stdin --fix-thin --strict < "$PACK" >/dev/null 2>"$D/said" || { rm -f "$PACK"; fail "pack $(head -n 1 "$D/said")"; }; fi
rm -f "$PACK"
[ "$(sg rev-parse -q --verify "$C^{tree}" 2>/dev/null)" = "$T" ] || fail incomplete
roll_forward
snapshot
FIRST=0; [ -f "$D/pushed" ] || FIRST=1
NOWHEAD=$(head_of)
if [ "$FIRST" = 0 ] && [ "$HEALED" = 0 ]; then
  if [ "$SEENTREE" = none ]; then SEENTREE=$(saved tree) SEENHEAD=$(saved head); fi
  if [ "$S" != "$SEENTREE" ] || [ "$NOWHEAD" != "$SEENHEAD" ]; then
    [ "$FORCE" = force ] || fail unpulled
    keep replaced
    if [ "$NOWHEAD" != none ]; then wg update-ref "refs/atoll/kept/$(date +%s)-$$" "$NOWHEAD"; fi
  fi
fi
E=$(saved extra)
if [ "$FIRST" = 1 ]; then E=$S; fi
if [ "$HEALED" = 1 ]; then keep healed; fi
N=$T NC=$C
if [ "$E" != none ] && [ "$E" != 4b825dc642cb6eb9a060e54bf8d69288fbee4904 ]; then
  export GIT_INDEX_FILE=$D/merge-index
  rm -f "$GIT_INDEX_FILE" "$GIT_INDEX_FILE.lock"
  sg read-tree "$T" || fail extra
  sg diff-tree -r -z --no-renames --diff-filter=D --name-only "$E" "$T" > "$D/extra-names"
  if [ -s "$D/extra-names" ]; then
    sg ls-tree -r -z "$E" > "$D/extra-all"
    tr '\\n\\000' '\\000\\n' < "$D/extra-names" > "$D/extra-lines"
    tr '\\n\\000' '\\000\\n' < "$D/extra-all" | awk -F '\\t' 'NR==FNR{w[$0]=1;next} {n=substr($0,index($0,"\\t")+1); if (n in w) print}' "$D/extra-lines" - | tr '\\n\\000' '\\000\\n' | sg update-index --add -z --index-info && N=$(sg write-tree) || N=$T
    if [ "$N" != "$T" ]; then NC=$(sg commit-tree -p "$C" -m 'atoll snapshot' "$N") || fail extra; fi
  fi
  unset GIT_INDEX_FILE
fi
APPLIED=0
if [ "$S" != "$N" ]; then
  APPLIED=1
  save applying "$N"
  sg read-tree --reset -u "$N" 2>"$D/said" || fail "apply $(head -n 1 "$D/said")"
fi
if [ "$KIND" = git ]; then
  if [ "$H" != none ]; then
    if [ "$NOWHEAD" != none ] && [ "$NOWHEAD" != "$H" ]; then wg update-ref refs/atoll/previous "$NOWHEAD"; fi
    if [ "$B" = detached ]; then wg update-ref --no-deref HEAD "$H" || fail head
    else wg update-ref "$B" "$H" && wg symbolic-ref HEAD "$B" || fail head; fi
  elif [ "$B" != detached ]; then wg symbolic-ref HEAD "$B" || fail head; wg update-ref -d "$B" 2>/dev/null; fi
  if [ "$I" != none ] && { [ "$APPLIED" = 1 ] || [ "$(saved index)" != "$I" ] || [ "$NOWHEAD" != "$H" ] || [ ! -f "$W/.git/index" ]; }; then
    rm -f "$W/.git/index.lock"
    cp "$G/index" "$W/.git/index" && wg read-tree -i -m "$I" || { rm -f "$W/.git/index"; wg read-tree "$I" || fail index; }
  fi
  wg update-ref refs/atoll/pushed "$C"
fi
sg update-ref refs/atoll/pushed "$C" && sg update-ref refs/atoll/base "$NC" || fail refs
save extra "$E"; save index "$I"; save tree "$N"; save head "$H"; save base "$NC"; save pushed "$C"
rm -f "$D/applying"
printf 'base %s\\ntree %s\\nhead %s\\napplied %s\\nhealed %s\\n\\n' "$NC" "$N" "$(head_of)" "$APPLIED" "$HEALED"
`;

/** Arguments: the base, the sandbox's tree and head as last seen, how much may go out at once, then what the caller has. */
export const pullScript = `${prelude}
BASE=$1 SEENTREE=$2 SEENHEAD=$3 INLINE=$4
shift 4
[ -f "$D/pushed" ] || fail fresh
if [ "$BASE" != none ] && [ "$(saved base)" != "$BASE" ]; then fail stale; fi
BASE=$(saved base)
if [ "$KIND" = git ] && ! wg rev-parse -q --git-dir >/dev/null 2>&1; then fail lost-git; fi
[ ! -f "$D/applying" ] || fail applying
snapshot
H=$(head_of)
printf 'base %s\\ntree %s\\nhead %s\\nbranch %s\\n' "$BASE" "$S" "$H" "$(branch_of)"
if [ "$S" = "$SEENTREE" ] && [ "$H" = "$SEENHEAD" ]; then printf 'same yes\\n\\n'; exit 0; fi
C=$(sg commit-tree -p "$BASE" -m 'atoll snapshot' "$S") || fail snapshot
I=none
if [ "$KIND" = git ] && [ "$H" != none ]; then
  cp "$W/.git/index" "$D/index-copy" 2>/dev/null && I=$(GIT_INDEX_FILE=$D/index-copy wg write-tree 2>/dev/null) || I=none
fi
sg update-ref refs/atoll/snapshot "$C"
{ echo "$C"; [ "$H" = none ] || echo "$H"; [ "$I" = none ] || echo "$I"
  for have in "$@"; do echo "$have"; done | sg cat-file --batch-check='%(objectname) %(objecttype)' | sed -n 's/^\\([0-9a-f]*\\) commit$/^\\1/p'
} > "$D/revs"
sg pack-objects -q --revs --thin --stdout --delta-base-offset < "$D/revs" > "$D/pack.out" 2>"$D/said" || fail "pack $(head -n 1 "$D/said")"
BYTES=$(wc -c < "$D/pack.out" | tr -d ' ')
printf 'snapshot %s\\nindex %s\\nbytes %s\\n\\n' "$C" "$I" "$BYTES"
if [ "$BYTES" -le "$INLINE" ]; then cat "$D/pack.out"; fi
`;
