/** The findings as text: a table, and below it what explains single lines. */
import type { Finding } from './finding.ts';

const headings = ['measured', 'median', 'against', 'ratio', 'limit', ''] as const;

/** A Markdown table whose columns line up, so that it reads well in a terminal too. */
export function formatTable(findings: readonly Finding[]): string {
  const notes = findings.flatMap(({ notes: list }) => list);
  let noteNumber = 0;
  const rows = findings.map((finding) => {
    const marks = finding.notes.map(() => `[${++noteNumber}]`).join(' ');
    const verdict = finding.verdict === 'missed' ? '**missed**' : finding.verdict;
    const ratio = finding.ratio === undefined ? '' : finding.ratio.toFixed(2);
    return [finding.what, finding.measured, finding.against, ratio, finding.limit, `${verdict} ${marks}`.trim()];
  });
  const widths = headings.map((heading, column) =>
    Math.max(heading.length, 3, ...rows.map((row) => row[column]!.length)),
  );
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell, column) => cell.padEnd(widths[column]!)).join(' | ')} |`;
  const rule = `|${widths.map((width) => '-'.repeat(width + 2)).join('|')}|`;
  const table = [line(headings), rule, ...rows.map(line)];
  const explained = notes.map((note, index) => `[${index + 1}] ${note}  `);
  return [...table, ...(explained.length > 0 ? ['', ...explained] : []), ''].join('\n');
}

export function formatCounts(findings: readonly Finding[]): string {
  const count = (verdict: Finding['verdict']) => findings.filter((finding) => finding.verdict === verdict).length;
  return `${count('met')} met, ${count('missed')} missed, ${count('failed')} failed`;
}
