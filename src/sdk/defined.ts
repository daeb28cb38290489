/** An object without the fields that are `undefined`, as options and bodies want it. */
type Defined<Value> = { [Key in keyof Value]?: Exclude<Value[Key], undefined> };

export function definedOf<Value extends object>(value: Value): Defined<Value> {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined)) as Defined<Value>;
}
