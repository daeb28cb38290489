/** An object without the entries that are undefined: what is absent on the wire is absent in the type, too. */
type Defined<Value> = { [Key in keyof Value]?: Exclude<Value[Key], undefined> };

export function definedOf<Value extends object>(value: Value): Defined<Value> {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as Defined<Value>;
}
