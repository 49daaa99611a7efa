"""ottla completion bash|zsh|fish

The script asks `ottla completion SHELL --line ...` at each press of the key, so that what is completed is what the installed
version knows. A line of the answer is a candidate and, behind a tab, what it is. A line that is `:files` alone means names of
files, which the shell completes itself.
"""

from __future__ import annotations

import argparse

from ottla.server.commands.outcome import EXIT_OK

DESCRIPTION = """\
Prints a script that makes a shell complete what `ottla` takes: commands, options, names of settings and files.
"""

EXAMPLES = """\
examples:
  eval "$(ottla completion bash)"                in ~/.bashrc
  eval "$(ottla completion zsh)"                 in ~/.zshrc, behind compinit
  ottla completion fish >~/.config/fish/completions/ottla.fish
"""

# `default` completes files where this finds nothing. Candidates bring their space, because behind `name=` there is none.
_BASH = r"""_ottla() {
    local IFS=$'\n' line
    COMPREPLY=()
    while read -r line; do
        if [ "$line" != ":files" ]; then COMPREPLY+=("${line%%$'\t'*}"); fi
    done < <(ottla completion bash --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o default -o nospace -F _ottla ottla
"""

_ZSH = r"""_ottla() {
    local line
    local -a candidates shown
    for line in "${(@f)$(ottla completion zsh --line "${(j: :)words[1,CURRENT]}" 2>/dev/null)}"; do
        if [[ $line == :files ]]; then _files; return; fi
        if [[ -z $line ]]; then continue; fi
        candidates+=("${line%%$'\t'*}")
        shown+=("${line/$'\t'/  -- }")
    done
    compadd -Q -S '' -l -d shown -a candidates
}
compdef _ottla ottla
"""

_FISH = r"""function __ottla_complete
    for line in (ottla completion fish --line (commandline -cp | string collect) 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            printf '%s\n' $line
        end
    end
end
complete -c ottla -f -a '(__ottla_complete)'
"""

SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which shell; and, from the scripts, the command line up to the cursor."""
    parser.add_argument("shell", choices=SCRIPTS, help="the shell that the script is for")
    parser.add_argument("--line", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Print the script, or the candidates for a line."""
    if options.line is None:
        print(SCRIPTS[options.shell], end="")
        return EXIT_OK
    from ottla.server.commands.candidates import FILES, behind_word_breaks, candidates

    for each in candidates(options.line):
        if each == FILES:
            print(":files")
        elif options.shell == "fish":
            print(f"{each.text}\t{each.what}" if each.what else each.text)
        else:
            text = behind_word_breaks(options.line, each.text) if options.shell == "bash" else each.text
            print(text + ("" if each.goes_on else " ") + (f"\t{each.what}" if each.what else ""))
    return EXIT_OK
