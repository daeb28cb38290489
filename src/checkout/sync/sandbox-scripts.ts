/**
 * What sync runs in the sandbox: plain sh and git, one run per question. Data comes on stdin and leaves on stdout: a few lines of text, an empty
 * line, then a pack. Nothing that these scripts say is believed without a check on this side.
 *
 * Inside, a repository of sync's own (`$G`) stands beside the checkout (`$W`), out of it: it has an index for the whole working tree and the
 * packs that were sent, from which the checkout's own `.git` borrows. Files are written there as bytes, without conversion or filters.
 *
 * Every process counts: a file is read with `read`, and git is asked only for what no file tells.
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
line_of() { LINE=; { read -r LINE < "$1"; } 2>/dev/null || :; }
head_of() {
  [ "$KIND" = git ] || { echo none; return; }
  line_of "$W/.git/HEAD"
  case $LINE in 'ref: refs/heads/'*) line_of "$W/.git/\${LINE#ref: }";; esac
  case $LINE in
    ''|*[!0-9a-f]*) wg rev-parse -q --verify HEAD 2>/dev/null || echo none;;
    *) echo "$LINE";;
  esac
}
branch_of() {
  [ "$KIND" = git ] || { echo detached; return; }
  line_of "$W/.git/HEAD"
  case $LINE in
    'ref: '*) echo "\${LINE#ref: }";;
    ''|*[!0-9a-f]*) wg symbolic-ref -q HEAD || echo detached;;
    *) echo detached;;
  esac
}
# What the last push left: its snapshot, the base made from it, their tree, head, staged tree, and what was there before the first.
WAS_PUSHED=none WAS_BASE=none WAS_TREE=none WAS_HEAD=none WAS_INDEX=none WAS_EXTRA=none
if [ -f "$D/state" ]; then { read -r WAS_PUSHED; read -r WAS_BASE; read -r WAS_TREE; read -r WAS_HEAD; read -r WAS_INDEX; read -r WAS_EXTRA; } < "$D/state"; fi
# The tree that the index of $G holds, unless a run was cut short.
line_of "$D/indexed"; INDEXED=\${LINE:-none}
indexed() { INDEXED=$1; printf '%s\\n' "$1" > "$D/indexed"; }
not_indexed() { [ "$INDEXED" = none ] || { INDEXED=none; : > "$D/indexed"; }; }
# Whoever runs has the lease, so a lock in a repository of sync's own is of a git that was killed.
unlock() { for LOCK in "$G/"*.lock "$G/refs/atoll/"*.lock; do [ ! -e "$LOCK" ] || rm -f "$LOCK"; done; }
list_changed() {
  unlock
  sg diff-files -z --name-only --ignore-submodules=dirty > "$D/dirty" &
  LIST=$!
  sg ls-files -z -o --exclude-standard > "$D/others" || fail snapshot
  wait "$LIST" || fail snapshot
}
is_long() { [ -s "$1" ] && [ "$(wc -c < "$1")" -gt 20000 ]; }
# The tree of the working tree, in S.
snapshot() {
  # Entries as new as the index itself are read whole each time; written once more, it is newer than they are.
  line_of "$D/racy"
  if [ -n "$LINE" ] && [ "$(date +%s)" -gt $((LINE + 1)) ]; then
    unlock
    rm -f "$D/racy"
    sg update-index -q --refresh --force-write-index >/dev/null 2>&1 || :
  fi
  list_changed
  # Touched and not changed: that is learnt by looking, not by storing them again.
  if is_long "$D/dirty"; then sg update-index -q --refresh >/dev/null 2>&1 || :; list_changed; fi
  if [ ! -s "$D/dirty" ] && [ ! -s "$D/others" ]; then
    S=$INDEXED
    [ "$S" = none ] || return 0
  else
    not_indexed
    # Where a file became a directory, what was there has to go before what is there comes.
    cat "$D/dirty" "$D/others" > "$D/changed"
    MANY=512m
    if is_long "$D/changed"; then MANY=1; date +%s > "$D/racy"; fi
    sg -c "core.bigFileThreshold=$MANY" update-index --add --remove --replace -z --stdin < "$D/changed" 2>"$D/said" || fail "snapshot $(head -n 1 "$D/said")"
  fi
  S=$(sg write-tree) || fail snapshot
  indexed "$S"
}
keep() { K=$(sg commit-tree -m "atoll: $1" "$S") && sg update-ref "refs/atoll/kept/$(date +%s)-$$" "$K"; }
`;

const ensure = `
borrow() { mkdir -p "$1/info" && { grep -qxF "$2" "$1/info/alternates" 2>/dev/null || printf '%s\\n' "$2" >> "$1/info/alternates"; }; }
ensure() {
  mkdir -p "$W" "$D" || fail no-directory
  [ -w "$W" ] && [ -d "$W" ] || fail no-directory
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
roll_forward() {
  [ -f "$D/applying" ] || return 0
  line_of "$D/applying"; GOAL=$LINE
  snapshot
  keep interrupted
  not_indexed
  sg read-tree --reset -u "$GOAL" || fail apply
  rm -f "$D/applying"
}
`;

/** Says what the sandbox has, to somebody who has no record of it. */
export const probeScript = `${prelude}
[ -f "$D/ready" ] || fail fresh
if [ "$KIND" = git ] && ! wg rev-parse -q --git-dir >/dev/null 2>&1; then fail lost-git; fi
snapshot
printf 'base %s\\npushed %s\\ntree %s\\nsnapshot %s\\nhead %s\\n' "$WAS_BASE" "$WAS_PUSHED" "$WAS_TREE" "$S" "$(head_of)"
sg for-each-ref --count=64 --sort=-committerdate --format='have %(objectname)' refs/atoll
if [ "$KIND" = git ]; then wg for-each-ref --count=64 --sort=-committerdate --format='have %(objectname)' refs/heads refs/atoll refs/remotes; fi
echo
`;

/**
 * Says what is in the checkout there, to somebody who knows what was pushed last; it runs while the snapshot here is taken. Arguments: patterns, the
 * snapshot that was pushed last.
 */
export const lookScript = `${prelude}
EXCL=$1 PUSHED=$2
[ "$WAS_PUSHED" = "$PUSHED" ] || fail stale
[ ! -f "$D/applying" ] || fail interrupted
[ "$KIND" != git ] || [ -f "$W/.git/HEAD" ] || fail interrupted
printf '/.git\\n%s' "$EXCL" > "$G/info/exclude"
snapshot
printf 'base %s\\ntree %s\\nhead %s\\n\\n' "$WAS_BASE" "$S" "$(head_of)"
`;

/**
 * Tells the paths that differ from the tree that was last seen, and changes nothing: its index is a copy. Arguments: patterns, that tree, the most
 * bytes of names to tell.
 */
export const statusScript = `${prelude}
EXCL=$1 SEENTREE=$2 LIMIT=$3
[ "$WAS_PUSHED" != none ] || fail fresh
COPY=$(mktemp -d) || fail snapshot
trap 'rm -rf "$COPY"' EXIT
cp "$G/index" "$COPY/index" && printf '/.git\\n%s' "$EXCL" > "$COPY/exclude" || fail snapshot
export GIT_INDEX_FILE=$COPY/index
sg update-index -q --refresh >/dev/null 2>&1 || :
sg cat-file -e "$SEENTREE" 2>/dev/null || SEENTREE=$WAS_TREE
{ sg diff-index -z --name-only --no-renames --ignore-submodules=all "$SEENTREE" && sg ls-files -z -o --exclude-per-directory=.gitignore --exclude-from="$COPY/exclude"; } > "$COPY/names" || fail snapshot
printf 'head %s\\nbytes %s\\n\\n' "$(head_of)" "$(wc -c < "$COPY/names" | tr -d ' ')"
head -c "$LIMIT" "$COPY/names"
`;

/**
 * Arguments: patterns, the snapshot to take over, its tree, head, branch, index tree, what the caller believes the sandbox has (its last pushed
 * snapshot, its tree and its head as last seen), whether to replace what nobody has seen, shallow boundaries, the tree that a look has just found or
 * "none", whether there are many changes, the file with the pack or "-", how many objects are in it.
 */
export const pushScript = `${prelude}${ensure}
EXCL=$1 C=$2 T=$3 H=$4 B=$5 I=$6 PUSHED=$7 SEENTREE=$8 SEENHEAD=$9
shift 9
FORCE=$1 SHALLOW=$2 LOOKED=$3 RACY=$4 PACK=$5 OBJECTS=$6
# What was sent by somebody who was killed before it was taken.
for SENT in "$D/pack-"*; do [ "$SENT" = "$PACK" ] || [ ! -e "$SENT" ] || rm -f "$SENT"; done
if [ "$PUSHED" != none ] && [ "$WAS_PUSHED" != "$PUSHED" ]; then fail stale; fi
if [ "$PUSHED" = none ] && [ "$WAS_PUSHED" != none ] && [ "$FORCE" != force ]; then fail stale; fi
[ "$LOOKED" != none ] && [ "$INDEXED" = "$LOOKED" ] && [ ! -f "$D/applying" ] || LOOKED=none
if [ "$LOOKED" = none ]; then ensure "$EXCL"; fi
if [ "$SHALLOW" != none ]; then
  printf '%s\\n' $SHALLOW > "$G/shallow"
  if [ "$KIND" = git ]; then cp "$G/shallow" "$W/.git/shallow"; fi
elif [ -f "$G/shallow" ]; then rm -f "$G/shallow" "$W/.git/shallow"; fi
take_pack() { if [ "$OBJECTS" -le 100 ]; then sg unpack-objects -q --strict; else sg index-pack --stdin --fix-thin --strict; fi >/dev/null 2>"$D/said"; }
if [ "$PACK" != - ]; then
  take_pack < "$PACK" || { rm -f "$PACK"; fail "pack $(head -n 1 "$D/said")"; }
  rm -f "$PACK"
elif [ "$OBJECTS" -gt 0 ]; then take_pack || fail "pack $(head -n 1 "$D/said")"; fi
[ "$(sg rev-parse -q --verify "$C^{tree}" 2>/dev/null)" = "$T" ] || fail incomplete
if [ "$LOOKED" = none ]; then roll_forward; snapshot; else S=$LOOKED; fi
FIRST=0; [ "$WAS_PUSHED" != none ] || FIRST=1
NOWHEAD=$(head_of)
if [ "$FIRST" = 0 ] && [ "$HEALED" = 0 ]; then
  if [ "$SEENTREE" = none ]; then SEENTREE=$WAS_TREE SEENHEAD=$WAS_HEAD; fi
  if [ "$S" != "$SEENTREE" ] || [ "$NOWHEAD" != "$SEENHEAD" ]; then
    [ "$FORCE" = force ] || fail unpulled
    keep replaced
    if [ "$NOWHEAD" != none ]; then wg update-ref "refs/atoll/kept/$(date +%s)-$$" "$NOWHEAD"; fi
  fi
fi
E=$WAS_EXTRA
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
  printf '%s\\n' "$N" > "$D/applying.new" && mv "$D/applying.new" "$D/applying" || fail apply
  not_indexed
  # A merge looks at each file that it is to replace; if one is not as the look has found it, everything is looked at again.
  if [ "$LOOKED" = none ] || ! sg read-tree -m -u "$S" "$N" 2>"$D/said"; then
    if [ "$LOOKED" != none ]; then
      snapshot
      if [ "$S" != "$LOOKED" ]; then
        if [ "$FORCE" != force ]; then rm -f "$D/applying"; fail unpulled; fi
        keep replaced
      fi
      not_indexed
    fi
    sg read-tree --reset -u "$N" 2>"$D/said" || fail "apply $(head -n 1 "$D/said")"
  fi
  indexed "$N"
  if [ "$RACY" = 1 ]; then date +%s > "$D/racy"; fi
fi
move_head() {
  if [ "$H" = none ]; then
    [ "$B" = detached ] || { wg symbolic-ref HEAD "$B" && { wg update-ref -d "$B" 2>/dev/null || :; }; }
  elif [ "$B" = detached ]; then wg update-ref --no-deref HEAD "$H"
  else wg update-ref "$B" "$H" && wg symbolic-ref HEAD "$B"; fi
}
index_stamp() { stat -c '%i %s %y %z' "$W/.git/index" 2>/dev/null || date +%s%N-$$; }
unlock
if [ "$KIND" = git ]; then
  # In the checkout's own repository others lock too: only what a move that was cut short may have locked is freed.
  if [ -f "$D/moving" ]; then line_of "$D/moving"; rm -f "$W/.git/HEAD.lock" "$W/.git/packed-refs.lock" "$W/.git/$LINE.lock" "$D/moving"; fi
  for LOCK in "$W/.git/refs/atoll/"*.lock; do [ ! -e "$LOCK" ] || rm -f "$LOCK"; done
  if [ "$NOWHEAD" != "$H" ] || [ "$(branch_of)" != "$B" ]; then
    if [ "$H" != none ] && [ "$NOWHEAD" != none ] && [ "$NOWHEAD" != "$H" ]; then wg update-ref refs/atoll/previous "$NOWHEAD"; fi
    printf '%s\\n' "$B" > "$D/moving"
    move_head || { rm -f "$D/moving"; fail head; }
    rm -f "$D/moving"
  fi
  if [ "$I" != none ] && { line_of "$D/index-stamp"; [ "$WAS_INDEX" != "$I" ] || [ "$NOWHEAD" != "$H" ] || [ "$LINE" != "$(index_stamp)" ]; }; then
    rm -f "$W/.git/index.lock"
    cp "$G/index" "$W/.git/index" && wg read-tree -i -m "$I" || { rm -f "$W/.git/index"; wg read-tree "$I" || fail index; }
    index_stamp > "$D/index-stamp"
  fi
  wg update-ref refs/atoll/pushed "$C" &
fi
printf 'update refs/atoll/pushed %s\\nupdate refs/atoll/base %s\\n' "$C" "$NC" | sg update-ref --stdin || fail refs
wait
printf '%s\\n' "$C" "$NC" "$N" "$H" "$I" "$E" > "$D/state.new" && mv "$D/state.new" "$D/state" || fail state
[ "$APPLIED" = 0 ] && [ ! -f "$D/applying" ] || rm -f "$D/applying"
# Every object is kept; only the number of files that hold them is bounded.
set -- "$G/objects/17/"*; LOOSE=$#
set -- "$G/objects/pack/"*.pack
if [ $# -gt 50 ] || [ "$LOOSE" -gt 27 ]; then sg repack -a -d -k -l -q >/dev/null 2>&1 || :; fi
printf 'base %s\\ntree %s\\nhead %s\\napplied %s\\nhealed %s\\n\\n' "$NC" "$N" "$H" "$APPLIED" "$HEALED"
`;

/** Arguments: the base, the sandbox's tree and head as last seen, how much may go out at once, then what the caller has. */
export const pullScript = `${prelude}
BASE=$1 SEENTREE=$2 SEENHEAD=$3 INLINE=$4
shift 4
[ "$WAS_PUSHED" != none ] || fail fresh
if [ "$BASE" != none ] && [ "$WAS_BASE" != "$BASE" ]; then fail stale; fi
BASE=$WAS_BASE
if [ "$KIND" = git ] && [ ! -f "$W/.git/HEAD" ] && ! wg rev-parse -q --git-dir >/dev/null 2>&1; then fail lost-git; fi
[ ! -f "$D/applying" ] || fail applying
snapshot
H=$(head_of)
printf 'base %s\\ntree %s\\nhead %s\\nbranch %s\\n' "$BASE" "$S" "$H" "$(branch_of)"
if [ "$S" = "$SEENTREE" ] && [ "$H" = "$SEENHEAD" ]; then printf 'same yes\\n\\n'; exit 0; fi
C=$(sg commit-tree -p "$BASE" -m 'atoll snapshot' "$S") || fail snapshot
I=none
if [ "$KIND" = git ] && [ "$H" != none ] && [ "$H" != "$SEENHEAD" ]; then
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
